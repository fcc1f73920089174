//! INIT: what the kernel can do, what we ask of it, what was settled.
//!
//! Every feature is asked for only where the kernel offers it; each costs or saves what
//! `docs/design/fuse.md` says. Not asked for: locks (a single mount leaves them to the kernel), the
//! write-back cache (it excludes passthrough and adds requests), idmapped mounts (they hide the caller's ids).

use std::{io, os::fd::BorrowedFd};

use cofs_types::limits;
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    abi::{self, InHeader, InitFlags2In, InitIn, InitOut, OutHeader, init, opcode},
    memory::PAGE_BYTES,
    mount::MountError,
};

/// What we ask for wherever it is offered.
const WANTED: u64 = init::ASYNC_READ
    | init::ATOMIC_O_TRUNC
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::CREATE_SUPP_GROUP
    | init::HAS_EXPIRE_ONLY
    | init::DIRECT_IO_ALLOW_MMAP
    | init::HAS_RESEND;

const NAMES: [(u64, &str); 22] = [
    (init::ASYNC_READ, "async_read"),
    (init::ATOMIC_O_TRUNC, "atomic_o_trunc"),
    (init::EXPORT_SUPPORT, "export_support"),
    (init::BIG_WRITES, "big_writes"),
    (init::DONT_MASK, "dont_mask"),
    (init::DO_READDIRPLUS, "readdirplus"),
    (init::ASYNC_DIO, "async_dio"),
    (init::PARALLEL_DIROPS, "parallel_dirops"),
    (init::POSIX_ACL, "posix_acl"),
    (init::MAX_PAGES, "max_pages"),
    (init::CACHE_SYMLINKS, "cache_symlinks"),
    (init::EXPLICIT_INVAL_DATA, "explicit_inval_data"),
    (init::HANDLE_KILLPRIV_V2, "handle_killpriv_v2"),
    (init::SETXATTR_EXT, "setxattr_ext"),
    (init::INIT_EXT, "init_ext"),
    (init::CREATE_SUPP_GROUP, "create_supp_group"),
    (init::HAS_EXPIRE_ONLY, "has_expire_only"),
    (init::DIRECT_IO_ALLOW_MMAP, "direct_io_allow_mmap"),
    (init::PASSTHROUGH, "passthrough"),
    (init::NO_EXPORT_SUPPORT, "no_export_support"),
    (init::HAS_RESEND, "has_resend"),
    (init::OVER_IO_URING, "over_io_uring"),
];

/// What the face would like beyond [`WANTED`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    /// The kernel checks permissions: modes and, with `POSIX_ACL` (which implies it), ACLs.
    pub kernel_checks: bool,
    pub passthrough: bool,
    /// Files can be found by handles.
    pub handles: bool,
    /// File systems on top of each other in which backing files may lie: 1 for a plain one.
    pub stack_depth: u32,
    pub uring: bool,
    /// Largest READ or WRITE.
    pub transfer_bytes: usize,
}

/// What was settled: all that a process which goes on with a connection must know of its INIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// The FUSE protocol in use: `7.minor`.
    pub minor: u32,
    /// The bits of [`crate::abi::init`].
    pub features: u64,
    /// Largest READ or WRITE; a power of two of pages.
    pub transfer_bytes: usize,
}

impl Settled {
    pub(crate) fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    pub(crate) fn feature_names(&self) -> Vec<&'static str> {
        NAMES.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| *name).collect()
    }
}

/// Reads INIT from a fresh connection and answers it. Errors: the kernel's protocol is too old or unknown,
/// or the connection broke.
pub(crate) fn negotiate(device: BorrowedFd<'_>, wishes: Wishes) -> Result<Settled, MountError> {
    let (mut unique, mut offer) = receive(device)?;
    if offer.major > abi::KERNEL_VERSION {
        // A newer major version: we name ours, and the kernel asks again in it.
        let (major, minor) = (abi::KERNEL_VERSION, abi::KERNEL_MINOR_VERSION);
        answer(device, unique, &InitOut { major, minor, ..Default::default() })?;
        (unique, offer) = receive(device)?;
    }
    let known = offer.major == abi::KERNEL_VERSION;
    if !known || offer.minor < abi::KERNEL_MINOR_VERSION_MIN {
        refuse(device, unique);
        let Offer { major, minor, .. } = offer;
        return Err(if major > abi::KERNEL_VERSION {
            broken("the kernel insists on a newer protocol than FUSE 7")
        } else {
            MountError::KernelTooOld { major, minor }
        });
    }
    let (settled, out) = settle(offer, wishes);
    answer(device, unique, &out)?;
    Ok(settled)
}

/// The kernel's INIT, with its number.
fn receive(device: BorrowedFd<'_>) -> Result<(u64, Offer), MountError> {
    let mut buffer = [0; abi::MIN_READ_BUFFER];
    let len = retried(|| rustix::io::read(device, &mut buffer[..])).map_err(MountError::Device)?;
    if len == 0 {
        let gone = io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended before INIT");
        return Err(MountError::Device(gone));
    }
    let message = buffer.get(..len).unwrap_or_default();
    let no_init = || broken("the kernel's first message is not INIT");
    let (header, body) = InHeader::read_from_prefix(message).map_err(|_| no_init())?;
    if header.opcode != opcode::INIT || header.len as usize != len {
        return Err(no_init());
    }
    Ok((header.unique, Offer::parse(body).ok_or_else(no_init)?))
}

/// What INIT brings.
#[derive(Clone, Copy, Debug)]
struct Offer {
    major: u32,
    minor: u32,
    readahead_bytes_max: u32,
    features: u64,
}

impl Offer {
    fn parse(body: &[u8]) -> Option<Self> {
        let (init, rest) = InitIn::read_from_prefix(body).ok()?;
        let mut features = u64::from(init.flags);
        if features & init::INIT_EXT != 0
            && let Ok((more, _)) = InitFlags2In::read_from_prefix(rest)
        {
            features |= u64::from(more.flags2) << 32;
        }
        Some(Self { major: init.major, minor: init.minor, readahead_bytes_max: init.max_readahead, features })
    }
}

fn settle(offer: Offer, wishes: Wishes) -> (Settled, InitOut) {
    let mut wanted = WANTED;
    if wishes.kernel_checks {
        wanted |= init::POSIX_ACL;
    }
    if wishes.passthrough {
        wanted |= init::PASSTHROUGH;
    }
    if wishes.uring {
        wanted |= init::OVER_IO_URING;
    }
    wanted |= if wishes.handles { init::EXPORT_SUPPORT } else { init::NO_EXPORT_SUPPORT };
    let mut features = offer.features & wanted;
    if features & init::HANDLE_KILLPRIV_V2 == 0 {
        // Nor would such a kernel (before 5.11) say that an open which truncates takes the set-id bits; apart from the open, it takes them itself.
        features &= !init::ATOMIC_O_TRUNC;
    }
    let minor = offer.minor.min(abi::KERNEL_MINOR_VERSION);
    // Without MAX_PAGES the kernel keeps to 32 pages.
    let pages_max =
        if features & init::MAX_PAGES == 0 { 32 } else { limits::FUSE_TRANSFER_BYTES_MAX / PAGE_BYTES };
    let pages = (wishes.transfer_bytes / PAGE_BYTES).clamp(1, pages_max);
    let settled = Settled { minor, features, transfer_bytes: pages * PAGE_BYTES };
    let out = InitOut {
        major: abi::KERNEL_VERSION,
        minor,
        max_readahead: offer.readahead_bytes_max,
        flags: features as u32,
        flags2: (features >> 32) as u32,
        max_background: limits::FUSE_BACKGROUND_MAX,
        congestion_threshold: limits::FUSE_BACKGROUND_MAX / 4 * 3,
        max_write: settled.transfer_bytes as u32,
        time_gran: 1,
        max_pages: pages as u16,
        max_stack_depth: if settled.has(init::PASSTHROUGH) { wishes.stack_depth } else { 0 },
        ..Default::default()
    };
    (settled, out)
}

fn answer(device: BorrowedFd<'_>, unique: u64, body: &InitOut) -> Result<(), MountError> {
    let mut message = [0; size_of::<OutHeader>() + size_of::<InitOut>()];
    let (head, rest) = message.split_at_mut(size_of::<OutHeader>());
    let len = (head.len() + rest.len()) as u32;
    head.copy_from_slice(OutHeader { len, error: 0, unique }.as_bytes());
    rest.copy_from_slice(body.as_bytes());
    retried(|| rustix::io::write(device, &message)).map(drop).map_err(MountError::Device)
}

fn refuse(device: BorrowedFd<'_>, unique: u64) {
    let header = OutHeader { len: size_of::<OutHeader>() as u32, error: -libc::EPROTO, unique };
    // The mount fails anyway, with the error that the caller has.
    let _ = rustix::io::write(device, header.as_bytes());
}

fn broken(how: &str) -> MountError {
    MountError::Device(io::Error::new(io::ErrorKind::InvalidData, how))
}

fn retried(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return outcome.map_err(Into::into),
        }
    }
}

#[cfg(test)]
mod tests;
