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
mod alarm;
mod dev_fuse;
mod dispatch;
mod errno;
mod executor;
mod forgets;
mod handle;
mod idle;
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
pub use idle::IdleCpus;
pub use mount::{HeldMount, MountError, MountOptions, Replaces, Transport, Unmount, check, unmount};
pub use negotiate::Settled;
pub use passthrough::is_open_elsewhere;
pub use resent::Resent;

#[cfg(fuzzing)]
pub use request::any::swallow_bytes as fuzz_request;
