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
    let mut buffer = [0; abi::MIN_READ_BUFFER];
    let (header, offer) = loop {
        let len = retried(|| rustix::io::read(device, &mut buffer[..])).map_err(MountError::Device)?;
        let message = buffer.get(..len).unwrap_or_default();
        let (header, body) = InHeader::read_from_prefix(message).map_err(|_| broken())?;
        if header.opcode != opcode::INIT {
            return Err(broken());
        }
        let offer = Offer::parse(body).ok_or_else(broken)?;
        if offer.major <= abi::KERNEL_VERSION {
            break (header, offer);
        }
        // A newer major version: we name ours, and the kernel asks again in it.
        answer(device, header.unique, &InitOut { major: abi::KERNEL_VERSION, ..Default::default() })?;
    };
    if offer.major < abi::KERNEL_VERSION || offer.minor < abi::KERNEL_MINOR_VERSION_MIN {
        refuse(device, header.unique);
        return Err(MountError::KernelTooOld { major: offer.major, minor: offer.minor });
    }
    let (settled, out) = settle(offer, wishes);
    answer(device, header.unique, &out)?;
    Ok(settled)
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
    let features = offer.features & wanted;
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

fn broken() -> MountError {
    MountError::Device(io::Error::new(io::ErrorKind::InvalidData, "the kernel's first message is not INIT"))
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
mod tests {
    use super::*;

    const WISHES: Wishes = Wishes {
        kernel_checks: true,
        passthrough: true,
        handles: true,
        stack_depth: 2,
        uring: true,
        transfer_bytes: 1 << 20,
    };

    fn offer(features: u64) -> Offer {
        Offer { major: 7, minor: 45, readahead_bytes_max: 131_072, features }
    }

    #[test]
    fn nothing_is_claimed_that_the_kernel_did_not_offer() {
        let (settled, out) = settle(offer(init::ASYNC_READ | init::INIT_EXT), WISHES);
        assert_eq!(settled.feature_names(), ["async_read", "init_ext"]);
        assert_eq!((out.flags2, out.max_stack_depth), (0, 0));
        assert_eq!(settled.transfer_bytes, 32 * PAGE_BYTES, "no MAX_PAGES");
    }

    #[test]
    fn a_modern_kernel_is_asked_for_everything_and_the_high_bits_travel_in_flags2() {
        let (settled, out) = settle(offer(u64::MAX), WISHES);
        assert_eq!(settled.feature_names().len(), NAMES.len() - 1, "all but one of a pair");
        assert_eq!(out.flags2, (1 << 2) | (1 << 3) | (1 << 4) | (1 << 5) | (1 << 7) | (1 << 9));
        assert_eq!((out.max_pages, out.max_write, out.max_stack_depth), (256, 1 << 20, 2));
        let (settled, _) = settle(offer(u64::MAX), Wishes { transfer_bytes: 1 << 20, ..Wishes::default() });
        let unwished = init::PASSTHROUGH | init::OVER_IO_URING | init::POSIX_ACL | init::EXPORT_SUPPORT;
        assert!(!settled.has(unwished));
        assert!(settled.has(init::NO_EXPORT_SUPPORT));
    }

    #[test]
    fn flags2_counts_only_with_init_ext() {
        let parse = |flags: u32| {
            let init = InitIn { major: 7, minor: 36, max_readahead: 0, flags };
            let bytes = [init.as_bytes(), &u32::MAX.to_ne_bytes()].concat();
            Offer::parse(&bytes).unwrap().features >> 32
        };
        assert_eq!(parse(0), 0);
        assert_eq!(parse(init::INIT_EXT as u32), u64::from(u32::MAX));
        assert!(Offer::parse(&[0; 15]).is_none());
    }
}
