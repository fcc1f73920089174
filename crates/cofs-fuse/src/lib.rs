//! The kernel's face: our own FUSE, from the ABI to the mount, for any [`cofs_face::FileSystem`].
//!
//! ```text
//! kernel ─► transport (dev_fuse, uring) ─► request ─► dispatch ─► translate ─► FileSystem
//!        ◄─ transport                   ◄─ reply   ◄───────────────────────────┘
//! ```
//!
//! [`mount()`] makes a mount and serves it; [`Mount`] is the handle to it; [`unmount`] takes down any, stale
//! ones included. `docs/design/fuse.md` tells which features are asked of the kernel and why.

pub mod abi;
mod dev_fuse;
mod dispatch;
mod errno;
mod executor;
mod forgets;
mod handle;
mod interrupt;
mod memory;
mod mount;
mod negotiate;
mod notify;
mod passthrough;
mod reply;
mod request;
mod resent;
mod scheduling;
mod session;
mod translate;
mod uring;

pub use handle::{Handover, Mount, MountReport, mount, mount_handing_on, resume};
pub use mount::{MountError, MountOptions, Transport, Unmount, check, unmount};
pub use negotiate::Settled;
pub use resent::Resent;

/// Any bytes as a request of the kernel: what the fuzzer calls. Their length is put right, or few would get any further.
#[cfg(fuzzing)]
pub fn fuzz_request(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let len = (bytes.len() as u32).to_ne_bytes();
    bytes.iter_mut().zip(len).for_each(|(byte, right)| *byte = right);
    if let Some(message) = request::Message::from_bytes(&bytes) {
        for setxattr_ext in [false, true] {
            let _ = request::parse(&message, request::Dialect { setxattr_ext });
        }
        let _ = message.supplementary_group();
    }
}
