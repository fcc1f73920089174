//! Seeded operations on a tree: few names, few directories, small files around the bound of inline data,
//! so that operations meet often. As proptest strategies they shrink to a minimal case.

use std::fmt;

use cofs_types::{Authority, Credentials, FallocateMode, FileKind, RenameMode, Timestamp, XattrMode};
use proptest::{collection::vec, option, prelude::*, sample::select};

/// Open files that a run can hold at one time.
pub const SLOTS: usize = 3;
/// The umask of every caller.
pub const UMASK: u16 = 0o022;

/// The names in use, by their index.
pub const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"dir", b"\xff\xfe odd", &[b'n'; 255]];
/// Extended attributes in use.
pub const XATTRS: [&[u8]; 5] = [b"user.a", b"user.b", b"trusted.t", ACL_ACCESS, ACL_DEFAULT];
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Who acts: the superuser or one of two users, by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who(pub u8);

impl Who {
    pub const ROOT: Who = Who(0);

    pub fn credentials(self) -> Credentials<'static> {
        let (uid, gid, groups): (_, _, &[u32]) = match self.0 {
            0 => (0, 0, &[0]),
            1 => (1001, 1001, &[1001, 3000]),
            _ => (1002, 1002, &[1002]),
        };
        Credentials { uid, gid, groups, authority: Authority::Unchecked }
    }

    pub fn is_root(self) -> bool {
        self.0 == 0
    }
}

/// A path from the root: indices into [`NAMES`]; empty is the root itself.
pub type Path = Vec<u8>;

/// The bytes of the names on a path.
pub fn names(path: &[u8]) -> impl Iterator<Item = &'static [u8]> + '_ {
    path.iter().filter_map(|&index| NAMES.get(usize::from(index)).copied())
}

/// One operation. Paths are resolved without following symlinks; slots hold open files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Make {
        path: Path,
        kind: FileKind,
        permissions: u16,
    },
    Symlink {
        path: Path,
        target: Vec<u8>,
    },
    Link {
        from: Path,
        to: Path,
    },
    LinkSlot {
        slot: usize,
        to: Path,
    },
    Unlink {
        path: Path,
    },
    Rmdir {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
        mode: RenameMode,
    },
    Open {
        slot: usize,
        path: Path,
        write: bool,
        truncate: bool,
    },
    Tmpfile {
        slot: usize,
        path: Path,
        permissions: u16,
        linkable: bool,
    },
    Close {
        slot: usize,
    },
    Write {
        slot: usize,
        offset: u64,
        len: usize,
        fill: u8,
    },
    Read {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Truncate {
        slot: usize,
        size: u64,
    },
    Fallocate {
        slot: usize,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    },
    Sync,
    Stat {
        path: Path,
    },
    StatSlot {
        slot: usize,
    },
    Chmod {
        path: Path,
        permissions: u16,
    },
    Chown {
        path: Path,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    Utimens {
        path: Path,
        atime: Timestamp,
        mtime: Timestamp,
    },
    Readdir {
        path: Path,
    },
    Readlink {
        path: Path,
    },
    SetXattr {
        path: Path,
        name: &'static [u8],
        value: Vec<u8>,
        mode: XattrMode,
    },
    GetXattr {
        path: Path,
        name: &'static [u8],
    },
    RemoveXattr {
        path: Path,
        name: &'static [u8],
    },
    ListXattr {
        path: Path,
    },
    /// The whole of a file by its path; asked when trees are compared.
    ReadAll {
        path: Path,
    },
}

/// One operation by somebody.
#[derive(Clone, PartialEq, Eq)]
pub struct Step {
    pub who: Who,
    pub op: Op,
}

/// On one line, however deep in a report.
impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}: {:?}", self.who.0, self.op)
    }
}

/// What kind of operations a run is to have.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub steps: usize,
    /// Files are written around this size.
    pub boundary: u64,
    /// Offsets of terabytes too, which no file reaches inline.
    pub large: bool,
    /// Others than root act too.
    pub users: bool,
    pub xattr_bytes_max: usize,
}

impl Default for Mix {
    fn default() -> Self {
        Self { steps: 60, boundary: 8192, large: true, users: true, xattr_bytes_max: 300 }
    }
}

/// The bytes that a write of `fill` at `offset` puts down.
pub fn pattern(fill: u8, offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| fill.wrapping_add(((offset + i) % 251) as u8) | 1).collect()
}

/// How many cases a test runs: `PROPTEST_CASES`, else `cases`. Failures are reported shrunk, and a failing
/// seed is kept by writing the shrunk case down as a test.
pub fn config(cases: u32) -> ProptestConfig {
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default().cases,
        None => cases,
    };
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default() }
}

/// Sequences of operations.
pub fn steps(mix: Mix) -> impl Strategy<Value = Vec<Step>> {
    vec(step(mix), 1..=mix.steps).prop_map(|steps| [prelude(), steps].concat())
}

/// A file and a directory to begin with, open to all, and an open file in it.
fn prelude() -> Vec<Step> {
    let make = |path: &[u8], kind| Op::Make { path: path.to_vec(), kind, permissions: 0o777 };
    let open = |permissions| Op::Chmod { path: vec![3], permissions };
    let ops = [
        make(&[3], FileKind::Directory),
        open(0o777),
        make(&[0], FileKind::Regular),
        make(&[3, 1], FileKind::Regular),
        Op::Open { slot: 0, path: vec![3, 1], write: true, truncate: false },
    ];
    ops.into_iter().map(|op| Step { who: Who::ROOT, op }).collect()
}

fn step(mix: Mix) -> impl Strategy<Value = Step> {
    let who = if mix.users {
        prop_oneof![4 => Just(0u8), 2 => Just(1), 1 => Just(2)].boxed()
    } else {
        Just(0).boxed()
    };
    (who, op(mix)).prop_map(|(who, op)| {
        // These three show or need what only the superuser may.
        let root = matches!(op, Op::LinkSlot { .. } | Op::ListXattr { .. } | Op::Sync);
        Step { who: if root { Who::ROOT } else { Who(who) }, op }
    })
}

fn op(mix: Mix) -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => names_ops(),
        5 => file_ops(mix),
        3 => attribute_ops(),
        2 => xattr_ops(mix),
    ]
}

fn name() -> impl Strategy<Value = u8> {
    prop_oneof![8 => 0..3u8, 3 => Just(3u8), 1 => 4..6u8]
}

fn path() -> impl Strategy<Value = Path> {
    // Most paths lead through one directory, so that they meet.
    let inside = name().prop_map(|name| vec![3, name]);
    prop_oneof![5 => vec(name(), 1), 4 => inside, 1 => vec(name(), 2), 1 => vec(name(), 3)]
}

fn path_or_root() -> impl Strategy<Value = Path> {
    prop_oneof![6 => path(), 1 => Just(Path::new())]
}

fn permissions() -> impl Strategy<Value = u16> {
    prop_oneof![
        4 => select(vec![0o777u16, 0o755, 0o666, 0o644, 0o600]),
        2 => select(vec![0o1777u16, 0o2775, 0o2755, 0o4755, 0o6711, 0o2644]),
        1 => 0..0o10000u16,
    ]
}

fn names_ops() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        6 => Just(FileKind::Regular),
        5 => Just(FileKind::Directory),
        1 => select(vec![FileKind::Fifo, FileKind::Socket]),
    ];
    let mode = prop_oneof![
        4 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        2 => Just(RenameMode::Exchange),
        1 => any::<bool>().prop_map(|replace| RenameMode::Whiteout { replace }),
    ];
    prop_oneof![
        9 => (path(), kind, permissions()).prop_map(|(path, kind, permissions)| Op::Make { path, kind, permissions }),
        1 => (path(), vec(any::<u8>(), 1..40)).prop_map(|(path, seed)| Op::Symlink { path, target: target(&seed) }),
        2 => (path(), path()).prop_map(|(from, to)| Op::Link { from, to }),
        3 => path().prop_map(|path| Op::Unlink { path }),
        2 => path().prop_map(|path| Op::Rmdir { path }),
        5 => (path(), path(), mode).prop_map(|(from, to, mode)| Op::Rename { from, to, mode }),
        2 => path_or_root().prop_map(|path| Op::Readdir { path }),
        1 => path().prop_map(|path| Op::Readlink { path }),
    ]
}

/// A target of any bytes but NUL that leads nowhere.
fn target(seed: &[u8]) -> Vec<u8> {
    [b"nowhere/", &*seed.iter().map(|b| (*b).max(1)).collect::<Vec<_>>()].concat()
}

fn file_ops(mix: Mix) -> impl Strategy<Value = Op> {
    let offset = move || offset(mix);
    let boundary = mix.boundary;
    let len = move || prop_oneof![4 => 1..600usize, 2 => 4000..4200usize, 1 => 1..=boundary as usize + 300];
    let slot = || prop_oneof![2 => Just(0), 1 => 0..SLOTS];
    let mode = prop_oneof![
        any::<bool>().prop_map(|keep_size| FallocateMode::Allocate { keep_size }),
        Just(FallocateMode::PunchHole),
        any::<bool>().prop_map(|keep_size| FallocateMode::ZeroRange { keep_size }),
    ];
    prop_oneof![
        5 => (slot(), path(), prop::bool::weighted(0.8), prop::bool::weighted(0.2))
            .prop_map(|(slot, path, write, trunc)| Op::Open { slot, path, write, truncate: write && trunc }),
        1 => (slot(), path_or_root(), permissions(), any::<bool>())
            .prop_map(|(slot, path, permissions, linkable)| Op::Tmpfile { slot, path, permissions, linkable }),
        1 => (slot(), path()).prop_map(|(slot, to)| Op::LinkSlot { slot, to }),
        3 => slot().prop_map(|slot| Op::Close { slot }),
        7 => (slot(), offset(), len(), any::<u8>())
            .prop_map(|(slot, offset, len, fill)| Op::Write { slot, offset, len, fill }),
        3 => (slot(), offset(), len()).prop_map(|(slot, offset, len)| Op::Read { slot, offset, len }),
        3 => (slot(), offset()).prop_map(|(slot, size)| Op::Truncate { slot, size }),
        1 => (slot(), mode, offset(), 1..9000u64)
            .prop_map(|(slot, mode, offset, len)| Op::Fallocate { slot, mode, offset, len }),
        1 => slot().prop_map(|slot| Op::StatSlot { slot }),
        1 => Just(Op::Sync),
    ]
}

fn offset(Mix { boundary, large, .. }: Mix) -> impl Strategy<Value = u64> {
    let far = if large { (1u64 << 32)..(1 << 40) } else { 0..boundary };
    prop_oneof![
        4 => 0..600u64,
        2 => 0..=boundary,
        3 => boundary.saturating_sub(300)..boundary + 300,
        1 => select(vec![0, 4095, 4096, 4097, boundary, boundary + 1]),
        1 => far,
    ]
}

fn attribute_ops() -> impl Strategy<Value = Op> {
    let id = || option::weighted(0.7, select(vec![0u32, 1001, 1002, 3000]));
    let time = || (0..CLOCK_LIMIT, 0..1_000_000_000u32).prop_map(|(secs, nanos)| Timestamp { secs, nanos });
    prop_oneof![
        3 => path_or_root().prop_map(|path| Op::Stat { path }),
        3 => (path_or_root(), permissions()).prop_map(|(path, permissions)| Op::Chmod { path, permissions }),
        2 => (path(), id(), id()).prop_map(|(path, uid, gid)| Op::Chown { path, uid, gid }),
        2 => (path_or_root(), time(), time()).prop_map(|(path, atime, mtime)| Op::Utimens { path, atime, mtime }),
    ]
}

const CLOCK_LIMIT: i64 = crate::answer::CLOCK_FROM_SECS;

fn xattr_ops(mix: Mix) -> impl Strategy<Value = Op> {
    let mode = prop_oneof![8 => Just(XattrMode::Set), 2 => Just(XattrMode::Create), 2 => Just(XattrMode::Replace), 1 => Just(XattrMode::Never)];
    let value = vec(any::<u8>(), 0..mix.xattr_bytes_max);
    let name = || select(XATTRS.to_vec());
    prop_oneof![
        3 => (path(), select(XATTRS.get(..3).unwrap_or_default().to_vec()), value, mode)
            .prop_map(|(path, name, value, mode)| Op::SetXattr { path, name, value, mode }),
        3 => (path_or_root(), select(vec![ACL_ACCESS, ACL_DEFAULT]), acl())
            .prop_map(|(path, name, value)| Op::SetXattr { path, name, value, mode: XattrMode::Set }),
        2 => (path(), name()).prop_map(|(path, name)| Op::GetXattr { path, name }),
        1 => (path(), name()).prop_map(|(path, name)| Op::RemoveXattr { path, name }),
        1 => path().prop_map(|path| Op::ListXattr { path }),
    ]
}

/// ACL values, most of them valid.
fn acl() -> impl Strategy<Value = Vec<u8>> {
    let rwx = || prop_oneof![3 => Just(7u16), 2 => Just(6u16), 3 => 0..8u16];
    let id = || option::of(select(vec![1001u32, 1002, 3000]));
    ([rwx(), rwx(), rwx(), rwx(), rwx(), rwx()].prop_map(|bits| bits), id(), id(), prop::bool::weighted(0.95))
        .prop_map(|([owner, user, group, named, mask, other], user_id, group_id, valid)| {
            let mut out = vec![2, 0, 0, 0];
            let mut put = |tag: u16, rwx: u16, id: u32| {
                out.extend_from_slice(&tag.to_le_bytes());
                out.extend_from_slice(&rwx.to_le_bytes());
                out.extend_from_slice(&id.to_le_bytes());
            };
            put(1, owner, u32::MAX);
            user_id.iter().for_each(|id| put(2, user, *id));
            put(4, group, u32::MAX);
            group_id.iter().for_each(|id| put(8, named, *id));
            if valid && (user_id.is_some() || group_id.is_some()) {
                put(16, mask, u32::MAX);
            }
            put(32, other, u32::MAX);
            out
        })
}
