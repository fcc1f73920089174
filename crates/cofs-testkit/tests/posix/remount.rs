//! What was there before an unmount is there after the next mount. Two ordered halves, which `./test posix`
//! runs with a remount between them; `$COFS_TEST_STATE` is a directory outside the mount.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{AtFlags, CWD, FileType, Timespec, Timestamps, XattrFlags, mknodat, utimensat};

use crate::support::{Handle, SIZES, handle_of, open_handle, pattern};

fn places() -> Option<(PathBuf, PathBuf)> {
    let top = std::env::var_os("COFS_TEST_DIR")?;
    let state = std::env::var_os("COFS_TEST_STATE")?;
    Some((Path::new(&top).join("remount"), state.into()))
}

fn make(top: &Path) {
    fs::create_dir_all(top.join("a/b/c")).unwrap();
    for size in SIZES {
        fs::write(top.join(format!("a/size-{size}")), pattern(*size as u64, *size)).unwrap();
    }
    let sparse = File::create(top.join("a/sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"far", 1 << 33).unwrap();
    fs::hard_link(top.join("a/size-4096"), top.join("a/b/linked")).unwrap();
    symlink("../a/b", top.join("a/link")).unwrap();
    mknodat(CWD, top.join("a/fifo"), FileType::Fifo, 0o640.into(), 0).unwrap();
    mknodat(CWD, top.join("a/device"), FileType::CharacterDevice, 0o600.into(), rustix::fs::makedev(5, 1))
        .unwrap();
    mknodat(CWD, top.join("a/socket"), FileType::Socket, 0o600.into(), 0).unwrap();
    for n in 0..1000 {
        File::create(top.join(format!("a/b/c/{n}"))).unwrap();
    }
    let file = top.join("a/size-1");
    rustix::fs::setxattr(&file, "user.short", b"value", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&file, "trusted.longer", &pattern(1, 3000), XattrFlags::empty()).unwrap();
    std::os::unix::fs::chown(top.join("a/size-511"), Some(1234), Some(4321)).unwrap();
    fs::set_permissions(top.join("a/size-511"), PermissionsExt::from_mode(0o6751)).unwrap();
    fs::set_permissions(top.join("a/b"), PermissionsExt::from_mode(0o3770)).unwrap();
    fs::rename(top.join("a/b/c/1"), top.join("a/b/c/renamed")).unwrap();
    fs::remove_file(top.join("a/b/c/2")).unwrap();
    for name in ["a/size-0", "a/link", "a/b/c"] {
        let time = |tv_sec| Timespec { tv_sec, tv_nsec: 123_456_789 };
        let both = Timestamps { last_access: time(4_000_000_000), last_modification: time(-77) };
        utimensat(CWD, top.join(name), &both, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    // Written last and left open until the process ends: settled by the last close.
    let open = File::create(top.join("a/open")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, &pattern(77, 200_000), 0).unwrap();
    std::mem::forget(open);
}

/// A sum that tells any two contents apart that these tests make (FNV-1a).
fn sum(data: &[u8]) -> u64 {
    data.iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn describe(path: &Path) -> String {
    let meta = fs::symlink_metadata(path).unwrap();
    let mut line = format!(
        "ino {} mode {:o} nlink {} uid {} gid {} rdev {} size {} atime {}.{} mtime {}.{} ctime {}.{}",
        meta.ino(),
        meta.mode(),
        meta.nlink(),
        meta.uid(),
        meta.gid(),
        meta.rdev(),
        if meta.is_dir() { 0 } else { meta.len() },
        meta.atime(),
        meta.atime_nsec(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec()
    );
    if meta.is_file() && meta.len() < 1 << 30 {
        write!(line, " sum {:x}", sum(&fs::read(path).unwrap())).unwrap();
    }
    if meta.is_symlink() {
        write!(line, " to {:?}", fs::read_link(path).unwrap()).unwrap();
    }
    let mut names = vec![0u8; 4096];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let mut names: Vec<&[u8]> =
        names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    for name in names {
        let mut value = vec![0u8; 65_536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        write!(line, " {}={:x}", String::from_utf8_lossy(name), sum(&value[..len])).unwrap();
    }
    assert!(!meta.file_type().is_block_device());
    line
}

fn walk(path: &Path, top: &Path, seen: &mut BTreeMap<String, String>) {
    let name = String::from_utf8_lossy(path.strip_prefix(top).unwrap().as_os_str().as_bytes()).into_owned();
    seen.insert(name, describe(path));
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            walk(&entry.unwrap().path(), top, seen);
        }
    }
}

const HANDLES: [&str; 3] = ["a/size-16384", "a/b/c", "a/size-1000003"];

#[test]
#[ignore = "half of a case: ./test posix runs it before a remount"]
fn before() {
    let Some((top, state)) = places() else { return };
    make(&top);
    // The first walk reads everything, so that the second moves no access time (relatime).
    std::thread::sleep(Duration::from_millis(20));
    walk(&top, &top, &mut BTreeMap::new());
    let mut seen = BTreeMap::new();
    walk(&top, &top, &mut seen);
    let lines: Vec<String> = seen.into_iter().map(|(name, line)| format!("{name}\t{line}")).collect();
    fs::write(state.join("tree"), lines.join("\n")).unwrap();
    for (number, name) in HANDLES.into_iter().enumerate() {
        let handle = handle_of(&top.join(name)).unwrap();
        fs::write(
            state.join(format!("handle-{number}")),
            [&handle.kind.to_le_bytes(), &*handle.bytes].concat(),
        )
        .unwrap();
    }
}

#[test]
#[ignore = "half of a case: ./test posix runs it after a remount"]
fn after() {
    let Some((top, state)) = places() else { return };
    let mount = File::open(&top).unwrap();
    for (number, name) in HANDLES.into_iter().enumerate() {
        let saved = fs::read(state.join(format!("handle-{number}"))).unwrap();
        let (kind, bytes) = saved.split_at(4);
        let handle = Handle { kind: i32::from_le_bytes(kind.try_into().unwrap()), bytes: bytes.to_vec() };
        let file = open_handle(&mount, &handle, libc::O_RDONLY).unwrap();
        assert_eq!(file.metadata().unwrap().ino(), fs::metadata(top.join(name)).unwrap().ino(), "{name}");
        assert_eq!(handle_of(&top.join(name)).unwrap(), handle, "{name}");
    }
    let mut seen = BTreeMap::new();
    walk(&top, &top, &mut seen);
    let before = fs::read_to_string(state.join("tree")).unwrap();
    let mut before: BTreeMap<&str, &str> =
        before.lines().map(|line| line.split_once('\t').unwrap()).collect();
    for (name, line) in &seen {
        assert_eq!(Some(line.as_str()), before.remove(name.as_str()), "{name}");
    }
    assert!(before.is_empty(), "lost: {before:?}");
    let file = fs::metadata(top.join("a/fifo")).unwrap();
    assert!(file.file_type().is_fifo());
    fs::remove_dir_all(&top).unwrap();
}
