//! From the kernel's bytes to a typed operation: a total function that allocates nothing.
//!
//! A request comes as a header, one fixed struct of arguments and what follows it (names, values, data).
//! `/dev/fuse` lays the three one behind the other, an io_uring entry keeps them apart: [`Message`] (`message.rs`) hides
//! which. Whatever the bytes are, the outcome is an [`Operation`] or the errno to answer with; names are
//! validated here and nowhere later. What does not borrow from the rest carries no lifetime, so that a READ
//! may be answered into the buffer that it came in.

use cofs_face::{HandleId, WriteFlags};
use cofs_types::{
    AccessMode, FallocateMode, FileKind, FsError, InodeId, Name, NewInode, OpenFlags, RenameMode, SeekWhence,
    SetAttributes, SetTime, Timestamp, XattrMode, XattrName, limits,
};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{
    abi::{self, flag, init, opcode, setattr},
    errno::Errno,
    negotiate::Settled,
};

mod message;

pub use message::Message;

pub type Parsed<T> = Result<T, Errno>;

const MALFORMED: Errno = Errno(libc::EINVAL);
/// Open for execve(2): `__FMODE_EXEC` of the kernel.
const FMODE_EXEC: u32 = 0x20;

/// What was settled at INIT and changes how requests are read.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// SETXATTR has its long form.
    pub setxattr_ext: bool,
    /// The kernel learns from a COPY_FILE_RANGE that the file has grown.
    pub copies: bool,
}

impl Dialect {
    /// FUSE 7.35 (Linux 5.16). Before, a kernel that does not write back keeps the old size until it asks for attributes: meanwhile
    /// whoever maps the new end dies of SIGBUS.
    const COPIES_MINOR_MIN: u32 = 35;

    pub(crate) fn of(settled: &Settled) -> Self {
        Self {
            setxattr_ext: settled.has(init::SETXATTR_EXT),
            copies: settled.minor >= Self::COPIES_MINOR_MIN,
        }
    }
}

/// Takes arguments off a message, front to back.
struct Arguments<'a> {
    fixed: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    fn of(message: &Message<'a>) -> Parsed<Self> {
        message.parts.map(|parts| Self { fixed: parts.fixed, rest: parts.rest })
    }

    fn fixed<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Parsed<T> {
        if let Some(fixed) = self.fixed.take() {
            return T::read_from_prefix(fixed).map(|(value, _)| value).map_err(|_| MALFORMED);
        }
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| MALFORMED)?;
        self.rest = rest;
        Ok(value)
    }

    fn string(&mut self) -> Parsed<&'a [u8]> {
        let end = self.rest.iter().position(|&b| b == 0).ok_or(MALFORMED)?;
        let (string, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(string)
    }

    fn name(&mut self) -> Parsed<&'a Name> {
        Ok(Name::new(self.string()?)?)
    }

    fn xattr_name(&mut self) -> Parsed<&'a XattrName> {
        Ok(XattrName::new(self.string()?)?)
    }

    fn data(&self, len: u32) -> Parsed<&'a [u8]> {
        self.rest.get(..len as usize).ok_or(MALFORMED)
    }
}

/// What a LOOKUP asks for.
#[derive(Clone, Copy, Debug)]
pub enum LookupOf<'a> {
    Name(&'a Name),
    Itself,
    Parent,
}

/// A READ's arguments.
#[derive(Clone, Copy, Debug)]
pub struct ReadOf {
    pub handle: HandleId,
    pub offset: u64,
    pub size: usize,
    /// Into the kernel's pages: a read for a caller names the owner of his locks.
    pub for_cache: bool,
}

/// A READDIR's or READDIRPLUS's arguments.
#[derive(Clone, Copy, Debug)]
pub struct ReaddirOf {
    pub handle: HandleId,
    pub cookie: u64,
    pub size: usize,
    pub with_attributes: bool,
}

/// One request, ready to be served. `ino` of the header is the subject unless said otherwise.
#[derive(Debug)]
pub enum Operation<'a> {
    Lookup(LookupOf<'a>),
    Forget {
        count: u64,
    },
    BatchForget(ForgetList<'a>),
    Getattr {
        handle: Option<HandleId>,
    },
    Statx {
        handle: Option<HandleId>,
    },
    Setattr {
        handle: Option<HandleId>,
        change: SetAttributes,
    },
    Readlink,
    Make {
        name: &'a Name,
        new: NewInode<'a>,
    },
    Unlink(&'a Name),
    Rmdir(&'a Name),
    Rename {
        from: &'a Name,
        to_parent: InodeId,
        to: &'a Name,
        mode: RenameMode,
    },
    /// The header's node is the new parent.
    Link {
        ino: InodeId,
        name: &'a Name,
    },
    Open(OpenFlags),
    Create {
        name: &'a Name,
        new: NewInode<'a>,
        flags: OpenFlags,
    },
    Tmpfile {
        new: NewInode<'a>,
        flags: OpenFlags,
    },
    Read(ReadOf),
    Write {
        handle: HandleId,
        offset: u64,
        data: &'a [u8],
        flags: WriteFlags,
    },
    Statfs,
    Release(HandleId),
    Flush(HandleId),
    Fsync {
        handle: HandleId,
        data_only: bool,
    },
    Fsyncdir,
    Setxattr {
        name: &'a XattrName,
        value: &'a [u8],
        mode: XattrMode,
        kill_set_gid: bool,
    },
    Getxattr {
        name: &'a XattrName,
        room: u32,
    },
    Listxattr {
        room: u32,
    },
    Removexattr(&'a XattrName),
    Opendir(OpenFlags),
    Readdir(ReaddirOf),
    Releasedir(HandleId),
    Access {
        mask: u32,
    },
    Fallocate {
        handle: HandleId,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    },
    Lseek {
        handle: HandleId,
        offset: u64,
        whence: SeekWhence,
    },
    CopyRange {
        handle: HandleId,
        offset: u64,
        to: (InodeId, HandleId, u64),
        len: u64,
        wide_answer: bool,
    },
    Syncfs,
    Destroy,
    /// Whoever waits for that request has had a signal.
    Interrupt {
        unique: u64,
    },
    /// The kernel expects no answer and nothing is to be done.
    Nothing,
}

/// The body of a BATCH_FORGET.
#[derive(Clone, Copy, Debug)]
pub struct ForgetList<'a>(&'a [u8]);

impl ForgetList<'_> {
    /// The inodes with the look-ups that are over.
    pub fn iter(&self) -> impl Iterator<Item = (InodeId, u64)> {
        self.0.chunks_exact(size_of::<abi::ForgetOne>()).filter_map(|bytes| {
            let entry = abi::ForgetOne::read_from_bytes(bytes).ok()?;
            Some((InodeId::new(entry.nodeid)?, entry.nlookup))
        })
    }
}

/// Parses what a message asks for. The errno is the answer to a request that is malformed (EINVAL or what
/// its name deserves), not served (ENOSYS) or refused (ENOTTY, EOPNOTSUPP).
pub fn parse<'a>(message: &Message<'a>, dialect: Dialect) -> Parsed<Operation<'a>> {
    let mut args = Arguments::of(message)?;
    match message.header.opcode {
        // The kernel copies itself then, by reads and writes.
        opcode::COPY_FILE_RANGE if !dialect.copies => Err(Errno(libc::ENOSYS)),
        opcode::READ
        | opcode::READDIR
        | opcode::READDIRPLUS
        | opcode::WRITE
        | opcode::FALLOCATE
        | opcode::LSEEK
        | opcode::COPY_FILE_RANGE
        | opcode::COPY_FILE_RANGE_64
        | opcode::RELEASE
        | opcode::RELEASEDIR
        | opcode::FLUSH
        | opcode::FSYNC
        | opcode::FSYNCDIR => on_open_file(message.header.opcode, &mut args),
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            on_xattr(message.header.opcode, &mut args, dialect)
        }
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY => {
            unanswered(message.header.opcode, &mut args)
        }
        opcode::MKNOD
        | opcode::MKDIR
        | opcode::SYMLINK
        | opcode::OPEN
        | opcode::CREATE
        | opcode::TMPFILE
        | opcode::OPENDIR => making(message.header.opcode, &mut args),
        code => on_name_or_inode(code, &mut args),
    }
}

/// Whether a request of this kind is never answered, not even with an error.
pub fn is_unanswered(code: u32) -> bool {
    matches!(code, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY)
}

fn unanswered<'a>(code: u32, args: &mut Arguments<'a>) -> Parsed<Operation<'a>> {
    Ok(match code {
        opcode::FORGET => Operation::Forget { count: args.fixed::<abi::ForgetIn>()?.nlookup },
        opcode::BATCH_FORGET => {
            let count = args.fixed::<abi::BatchForgetIn>()?.count;
            let bytes = args.rest.get(..count as usize * size_of::<abi::ForgetOne>()).ok_or(MALFORMED)?;
            Operation::BatchForget(ForgetList(bytes))
        }
        opcode::INTERRUPT => Operation::Interrupt { unique: args.fixed::<abi::InterruptIn>()?.unique },
        _ => Operation::Nothing,
    })
}

fn on_name_or_inode<'a>(code: u32, args: &mut Arguments<'a>) -> Parsed<Operation<'a>> {
    Ok(match code {
        opcode::LOOKUP => {
            Operation::Lookup(match args.string()? {
                // "/" is the kernel's own name of an entry that has none, as it was found by its number: overlayfs asks
                // whether it still stands.
                b"." | b"/" => LookupOf::Itself,
                b".." => LookupOf::Parent,
                name => LookupOf::Name(Name::new(name)?),
            })
        }
        opcode::GETATTR => {
            let arg: abi::GetattrIn = args.fixed()?;
            Operation::Getattr { handle: handle_if(arg.getattr_flags & flag::GETATTR_FH != 0, arg.fh) }
        }
        opcode::STATX => {
            let arg: abi::StatxIn = args.fixed()?;
            Operation::Statx { handle: handle_if(arg.getattr_flags & flag::GETATTR_FH != 0, arg.fh) }
        }
        opcode::SETATTR => attributes_to_set(args.fixed()?)?,
        opcode::READLINK => Operation::Readlink,
        opcode::UNLINK => Operation::Unlink(args.name()?),
        opcode::RMDIR => Operation::Rmdir(args.name()?),
        opcode::RENAME => {
            let arg: abi::RenameIn = args.fixed()?;
            rename(args, arg.newdir, 0)?
        }
        opcode::RENAME2 => {
            let arg: abi::Rename2In = args.fixed()?;
            rename(args, arg.newdir, arg.flags)?
        }
        opcode::LINK => {
            let ino = inode(args.fixed::<abi::LinkIn>()?.oldnodeid)?;
            Operation::Link { ino, name: args.name()? }
        }
        opcode::ACCESS => Operation::Access { mask: args.fixed::<abi::AccessIn>()?.mask },
        opcode::STATFS => Operation::Statfs,
        opcode::SYNCFS => args.fixed::<abi::SyncfsIn>().map(|_| Operation::Syncfs)?,
        opcode::DESTROY => Operation::Destroy,
        opcode::IOCTL => return Err(Errno(libc::ENOTTY)),
        // The kernel asks no more, and takes all files for ready, which regular ones are.
        opcode::POLL => return Err(Errno(libc::ENOSYS)),
        _ => return Err(Errno(libc::ENOSYS)),
    })
}

fn rename<'a>(args: &mut Arguments<'a>, newdir: u64, flags: u32) -> Parsed<Operation<'a>> {
    let mode = match flags {
        0 => RenameMode::Replace,
        libc::RENAME_NOREPLACE => RenameMode::NoReplace,
        libc::RENAME_EXCHANGE => RenameMode::Exchange,
        libc::RENAME_WHITEOUT => RenameMode::Whiteout { replace: true },
        flags if flags == libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE => {
            RenameMode::Whiteout { replace: false }
        }
        _ => return Err(MALFORMED),
    };
    Ok(Operation::Rename { from: args.name()?, to_parent: inode(newdir)?, to: args.name()?, mode })
}

fn making<'a>(code: u32, args: &mut Arguments<'a>) -> Parsed<Operation<'a>> {
    let new = |kind, mode: u32, umask: u32| NewInode {
        kind,
        permissions: (mode & 0o7777) as u16,
        umask: (umask & 0o777) as u16,
        rdev: 0,
        target: &[],
    };
    Ok(match code {
        opcode::MKNOD => {
            let arg: abi::MknodIn = args.fixed()?;
            let kind = FileKind::from_mode(arg.mode).ok_or(MALFORMED)?;
            Operation::Make {
                name: args.name()?,
                new: NewInode { rdev: arg.rdev, ..new(kind, arg.mode, arg.umask) },
            }
        }
        opcode::MKDIR => {
            let arg: abi::MkdirIn = args.fixed()?;
            Operation::Make { name: args.name()?, new: new(FileKind::Directory, arg.mode, arg.umask) }
        }
        opcode::SYMLINK => {
            let name = args.name()?;
            let target = args.string()?;
            if target.is_empty() {
                return Err(Errno(libc::ENOENT));
            }
            if target.len() > limits::SYMLINK_BYTES_MAX {
                return Err(Errno(libc::ENAMETOOLONG));
            }
            Operation::Make { name, new: NewInode { target, ..new(FileKind::Symlink, 0o777, 0) } }
        }
        opcode::OPEN => {
            let arg: abi::OpenIn = args.fixed()?;
            Operation::Open(open_flags(arg.flags, arg.open_flags))
        }
        opcode::OPENDIR => Operation::Opendir(open_flags(args.fixed::<abi::OpenIn>()?.flags, 0)),
        opcode::CREATE => {
            let arg: abi::CreateIn = args.fixed()?;
            let new = new(FileKind::Regular, arg.mode, arg.umask);
            Operation::Create { name: args.name()?, new, flags: open_flags(arg.flags, arg.open_flags) }
        }
        // TMPFILE: its name means nothing.
        _ => {
            let arg: abi::CreateIn = args.fixed()?;
            args.string()?;
            let new = new(FileKind::Regular, arg.mode, arg.umask);
            Operation::Tmpfile { new, flags: open_flags(arg.flags, arg.open_flags) }
        }
    })
}

fn on_open_file<'a>(code: u32, args: &mut Arguments<'a>) -> Parsed<Operation<'a>> {
    Ok(match code {
        opcode::READ => {
            let arg: abi::ReadIn = args.fixed()?;
            Operation::Read(ReadOf {
                handle: HandleId(arg.fh),
                offset: arg.offset,
                size: arg.size as usize,
                for_cache: arg.read_flags & flag::READ_LOCKOWNER == 0,
            })
        }
        opcode::READDIR | opcode::READDIRPLUS => {
            let arg: abi::ReadIn = args.fixed()?;
            Operation::Readdir(ReaddirOf {
                handle: HandleId(arg.fh),
                cookie: arg.offset,
                size: arg.size as usize,
                with_attributes: code == opcode::READDIRPLUS,
            })
        }
        opcode::WRITE => {
            let arg: abi::WriteIn = args.fixed()?;
            let flags = WriteFlags {
                kill_set_id: arg.write_flags & flag::WRITE_KILL_SUIDGID != 0,
                from_cache: arg.write_flags & flag::WRITE_CACHE != 0,
            };
            let data = args.data(arg.size)?;
            Operation::Write { handle: HandleId(arg.fh), offset: arg.offset, data, flags }
        }
        opcode::RELEASE => Operation::Release(HandleId(args.fixed::<abi::ReleaseIn>()?.fh)),
        opcode::RELEASEDIR => Operation::Releasedir(HandleId(args.fixed::<abi::ReleaseIn>()?.fh)),
        opcode::FLUSH => Operation::Flush(HandleId(args.fixed::<abi::FlushIn>()?.fh)),
        opcode::FSYNC => {
            let arg: abi::FsyncIn = args.fixed()?;
            Operation::Fsync {
                handle: HandleId(arg.fh),
                data_only: arg.fsync_flags & flag::FSYNC_FDATASYNC != 0,
            }
        }
        opcode::FSYNCDIR => args.fixed::<abi::FsyncIn>().map(|_| Operation::Fsyncdir)?,
        opcode::FALLOCATE => {
            let arg: abi::FallocateIn = args.fixed()?;
            let mode = fallocate_mode(arg.mode)?;
            Operation::Fallocate { handle: HandleId(arg.fh), mode, offset: arg.offset, len: arg.length }
        }
        opcode::LSEEK => {
            let arg: abi::LseekIn = args.fixed()?;
            let whence = seek_whence(arg.whence)?;
            Operation::Lseek { handle: HandleId(arg.fh), offset: arg.offset, whence }
        }
        // COPY_FILE_RANGE, and its successor with the wider answer.
        code => {
            let arg: abi::CopyFileRangeIn = args.fixed()?;
            Operation::CopyRange {
                handle: HandleId(arg.fh_in),
                offset: arg.off_in,
                to: (inode(arg.nodeid_out)?, HandleId(arg.fh_out), arg.off_out),
                len: arg.len,
                wide_answer: code == opcode::COPY_FILE_RANGE_64,
            }
        }
    })
}

fn on_xattr<'a>(code: u32, args: &mut Arguments<'a>, dialect: Dialect) -> Parsed<Operation<'a>> {
    Ok(match code {
        opcode::SETXATTR => {
            let arg: abi::SetxattrIn = if dialect.setxattr_ext {
                args.fixed()?
            } else {
                let short: abi::SetxattrCompatIn = args.fixed()?;
                abi::SetxattrIn { size: short.size, flags: short.flags, ..Default::default() }
            };
            let name = args.xattr_name()?;
            Operation::Setxattr {
                name,
                value: args.data(arg.size)?,
                mode: xattr_mode(arg.flags)?,
                kill_set_gid: arg.setxattr_flags & flag::SETXATTR_ACL_KILL_SGID != 0,
            }
        }
        opcode::GETXATTR => {
            let room = args.fixed::<abi::GetxattrIn>()?.size;
            Operation::Getxattr { name: args.xattr_name()?, room }
        }
        opcode::LISTXATTR => Operation::Listxattr { room: args.fixed::<abi::GetxattrIn>()?.size },
        // REMOVEXATTR.
        _ => Operation::Removexattr(args.xattr_name()?),
    })
}

fn attributes_to_set(arg: abi::SetattrIn) -> Parsed<Operation<'static>> {
    let asked = |bit| arg.valid & bit != 0;
    let time = |set, now, secs: u64, nanos| -> Parsed<Option<SetTime>> {
        Ok(match (asked(set), asked(now)) {
            (false, _) => None,
            (true, true) => Some(SetTime::Now),
            (true, false) => Some(SetTime::To(Timestamp::new(secs as i64, nanos).ok_or(MALFORMED)?)),
        })
    };
    let change = SetAttributes {
        permissions: asked(setattr::MODE).then_some((arg.mode & 0o7777) as u16),
        uid: asked(setattr::UID).then_some(arg.uid),
        gid: asked(setattr::GID).then_some(arg.gid),
        size_bytes: asked(setattr::SIZE).then_some(arg.size),
        atime: time(setattr::ATIME, setattr::ATIME_NOW, arg.atime, arg.atimensec)?,
        mtime: time(setattr::MTIME, setattr::MTIME_NOW, arg.mtime, arg.mtimensec)?,
        ctime: None,
        // With nothing to set: the kernel's `file_remove_privs`, before a write by one who may not keep the set-id
        // bits. It has taken them out of the request, because killing them is ours (`HANDLE_KILLPRIV_V2`).
        kill_set_id: asked(setattr::KILL_SUIDGID) || arg.valid & setattr::SETS == 0,
    };
    if change.size_bytes.is_some_and(|size| size > limits::FILE_BYTES_MAX) {
        return Err(FsError::FileTooLarge.into());
    }
    Ok(Operation::Setattr { handle: handle_if(asked(setattr::FH), arg.fh), change })
}

fn open_flags(flags: u32, open_flags: u32) -> OpenFlags {
    let has = |flag: i32| flags & flag as u32 == flag as u32;
    OpenFlags {
        access: match flags as i32 & libc::O_ACCMODE {
            libc::O_RDONLY => AccessMode::Read,
            libc::O_WRONLY => AccessMode::Write,
            _ => AccessMode::ReadWrite,
        },
        truncate: has(libc::O_TRUNC),
        append: has(libc::O_APPEND),
        exclusive: has(libc::O_EXCL),
        direct: has(libc::O_DIRECT),
        sync: has(libc::O_SYNC),
        data_sync: has(libc::O_DSYNC),
        no_atime: has(libc::O_NOATIME),
        exec: flags & FMODE_EXEC != 0,
        kill_set_id: open_flags & flag::OPEN_KILL_SUIDGID != 0,
    }
}

fn fallocate_mode(mode: u32) -> Parsed<FallocateMode> {
    let keep_size = mode as i32 & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode as i32 & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Ok(FallocateMode::Allocate { keep_size }),
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Ok(FallocateMode::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Ok(FallocateMode::ZeroRange { keep_size }),
        _ => Err(Errno(libc::EOPNOTSUPP)),
    }
}

fn seek_whence(whence: u32) -> Parsed<SeekWhence> {
    match whence as i32 {
        libc::SEEK_DATA => Ok(SeekWhence::Data),
        libc::SEEK_HOLE => Ok(SeekWhence::Hole),
        _ => Err(MALFORMED),
    }
}

fn xattr_mode(flags: u32) -> Parsed<XattrMode> {
    const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
    match flags as i32 {
        0 => Ok(XattrMode::Set),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        BOTH => Ok(XattrMode::Never),
        _ => Err(MALFORMED),
    }
}

fn handle_if(given: bool, fh: u64) -> Option<HandleId> {
    given.then_some(HandleId(fh))
}

/// A node number; 0 names nothing.
pub fn inode(number: u64) -> Parsed<InodeId> {
    InodeId::new(number).ok_or(MALFORMED)
}

#[cfg(any(test, fuzzing))]
pub(crate) mod any;
#[cfg(test)]
pub(crate) mod tests;
