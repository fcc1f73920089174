//! The same table by hand: system calls, layouts and numbers, and nothing of the crate but those. What a minimal loop costs.

pub mod dev;
pub mod uring;

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use cofs_fuse::abi::{
    self, Attr, AttrOut, EntryOut, InHeader, InitFlags2In, InitIn, InitOut, Kstatfs, OpenOut, OutHeader,
    WriteIn, WriteOut, fopen, init, opcode,
};
use rustix::{
    fs::{Mode, OFlags},
    mount::MountFlags,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::table::{TIME, Table};

/// As long as the kernel can believe.
const FOREVER: u64 = u32::MAX as u64;
/// What the crate asks for, too, of what matters here.
const WANTED: u64 = init::ASYNC_READ
    | init::ATOMIC_O_TRUNC
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::INIT_EXT;

/// A connection, mounted, and INIT answered. Errors: what the kernel refused.
pub fn mount(point: &Path, transfer_bytes: usize, over_uring: bool) -> io::Result<OwnedFd> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let fd = device.as_raw_fd();
    let data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions");
    let data = std::ffi::CString::new(data).map_err(io::Error::other)?;
    rustix::mount::mount("loop", point, "fuse.cofs", MountFlags::empty(), Some(data.as_c_str()))?;
    let wanted = if over_uring { WANTED | init::OVER_IO_URING } else { WANTED };
    let granted = answer_init(&device, transfer_bytes, wanted)?;
    if over_uring && granted & init::OVER_IO_URING == 0 {
        return Err(io::Error::other("the kernel does not offer FUSE over io_uring"));
    }
    Ok(device)
}

fn answer_init(device: &OwnedFd, transfer_bytes: usize, wanted: u64) -> io::Result<u64> {
    let mut buffer = [0; abi::MIN_READ_BUFFER];
    rustix::io::read(device, &mut buffer[..])?;
    let (header, body) = InHeader::read_from_prefix(&buffer).map_err(|_| io::ErrorKind::InvalidData)?;
    let (offer, rest) = InitIn::read_from_prefix(body).map_err(|_| io::ErrorKind::InvalidData)?;
    let (more, _) = InitFlags2In::read_from_prefix(rest).map_err(|_| io::ErrorKind::InvalidData)?;
    let granted = wanted & (u64::from(offer.flags) | u64::from(more.flags2) << 32);
    let out = InitOut {
        major: abi::KERNEL_VERSION,
        minor: offer.minor.min(abi::KERNEL_MINOR_VERSION),
        max_readahead: offer.max_readahead,
        flags: granted as u32,
        flags2: (granted >> 32) as u32,
        max_background: 64,
        congestion_threshold: 48,
        max_write: transfer_bytes as u32,
        time_gran: 1,
        max_pages: (transfer_bytes / 4096) as u16,
        ..Default::default()
    };
    let len = (size_of::<OutHeader>() + size_of::<InitOut>()) as u32;
    let head = OutHeader { len, error: 0, unique: header.unique };
    rustix::io::write(device, &[head.as_bytes(), out.as_bytes()].concat())?;
    Ok(granted)
}

/// How many bytes of a request its first argument has, by operation.
fn argument_bytes(opcode: u32) -> usize {
    match opcode {
        opcode::GETATTR | opcode::CREATE => 16,
        opcode::SETATTR => 88,
        opcode::OPEN | opcode::OPENDIR | opcode::GETXATTR | opcode::ACCESS => 8,
        opcode::READ | opcode::WRITE | opcode::READDIR | opcode::READDIRPLUS => 40,
        opcode::RELEASE | opcode::RELEASEDIR | opcode::FLUSH => 24,
        _ => 0,
    }
}

/// Whether nobody waits for an answer.
fn is_unanswered(opcode: u32) -> bool {
    matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT)
}

/// Serves one request: `argument` is its first, `tail` what follows (a name). The answer is put into `out`. Returns its length, or a
/// negative errno.
fn answer(table: &Table, header: &InHeader, argument: &[u8], tail: &[u8], out: &mut [u8]) -> i64 {
    let ino = header.nodeid;
    match header.opcode {
        opcode::LOOKUP => match named(tail).filter(|ino| table.size(*ino).is_some()) {
            Some(ino) => put(out, &entry(table, ino)),
            None => put(out, &EntryOut { entry_valid: FOREVER, ..Default::default() }),
        },
        opcode::CREATE => {
            let Some(ino) = named(tail) else { return -i64::from(libc::EINVAL) };
            table.create(ino);
            put(out, &entry(table, ino));
            let (_, rest) = out.split_at_mut(size_of::<EntryOut>());
            put(rest, &opened());
            (size_of::<EntryOut>() + size_of::<OpenOut>()) as i64
        }
        opcode::UNLINK => {
            named(tail).into_iter().for_each(|ino| table.remove(ino));
            0
        }
        opcode::GETATTR | opcode::SETATTR => {
            let attr = attr(table, ino);
            put(out, &AttrOut { attr_valid: FOREVER, attr_valid_nsec: 0, dummy: 0, attr })
        }
        opcode::OPEN => put(out, &opened()),
        opcode::OPENDIR => put(out, &OpenOut::default()),
        opcode::READ => {
            let size = argument
                .get(16..20)
                .map_or(0, |size| u32::from_ne_bytes(size.try_into().unwrap_or_default()));
            let len = out.len().min(size as usize);
            out[..len].fill(0);
            len as i64
        }
        opcode::WRITE => {
            let Ok((write, _)) = WriteIn::read_from_prefix(argument) else { return -i64::from(libc::EINVAL) };
            table.grow(ino, write.offset + u64::from(write.size));
            put(out, &WriteOut { size: write.size, padding: 0 })
        }
        opcode::STATFS => {
            put(out, &Kstatfs { bsize: 4096, frsize: 4096, namelen: 255, ..Default::default() })
        }
        opcode::GETXATTR => -i64::from(libc::ENODATA),
        opcode::RELEASE
        | opcode::RELEASEDIR
        | opcode::FLUSH
        | opcode::READDIR
        | opcode::READDIRPLUS
        | opcode::DESTROY => 0,
        _ => -i64::from(libc::ENOSYS),
    }
}

fn put<T: IntoBytes + Immutable>(out: &mut [u8], value: &T) -> i64 {
    let bytes = value.as_bytes();
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len() as i64
}

/// The inode of the name that ends with the first NUL.
fn named(tail: &[u8]) -> Option<u64> {
    let end = tail.iter().position(|byte| *byte == 0)?;
    Table::number(&tail[..end])
}

fn opened() -> OpenOut {
    OpenOut { fh: 0, open_flags: fopen::KEEP_CACHE | fopen::NOFLUSH, backing_id: 0 }
}

fn entry(table: &Table, ino: u64) -> EntryOut {
    EntryOut {
        nodeid: ino,
        entry_valid: FOREVER,
        attr_valid: FOREVER,
        attr: attr(table, ino),
        ..Default::default()
    }
}

fn attr(table: &Table, ino: u64) -> Attr {
    let size = table.size(ino).unwrap_or(0);
    let (mode, nlink) = if Table::is_directory(ino) { (0o40_755, 2) } else { (0o100_644, 1) };
    Attr {
        ino,
        size,
        blocks: size.div_ceil(512),
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
        mode,
        nlink,
        blksize: 4096,
        ..Default::default()
    }
}
