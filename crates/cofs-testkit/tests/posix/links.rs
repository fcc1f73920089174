//! Names and what they name: rename with its modes, links, unnamed files, special files.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, symlink},
            net::UnixListener,
        },
    },
    path::Path,
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, linkat, mknodat, renameat_with};

use crate::{
    ledger::deviates,
    support::{errno, scratch, truncate},
};

fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> std::io::Result<()> {
    renameat_with(CWD, from, CWD, to, flags).map_err(Into::into)
}

#[test]
fn noreplace_never_replaces() {
    let Some(s) = scratch() else { return };
    let (a, b) = (s.file("a", b"a"), s.file("b", b"b"));
    assert_eq!(errno(rename_with(&a, &b, RenameFlags::NOREPLACE)), libc::EEXIST);
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"a".to_vec(), b"b".to_vec()));
    rename_with(&a, &s.path("c"), RenameFlags::NOREPLACE).unwrap();
    assert!(!a.exists());
    symlink("nowhere", s.path("dangling")).unwrap();
    assert_eq!(errno(rename_with(&b, &s.path("dangling"), RenameFlags::NOREPLACE)), libc::EEXIST);
}

#[test]
fn exchange_swaps_whatever_the_two_are() {
    let Some(s) = scratch() else { return };
    let (left, right) = (s.dir("left", 0o755), s.dir("right", 0o755));
    fs::write(left.join("f"), "file").unwrap();
    fs::create_dir(right.join("d")).unwrap();
    fs::write(right.join("d/in"), "inside").unwrap();
    rename_with(&left.join("f"), &right.join("d"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(right.join("d")).unwrap(), b"file");
    assert_eq!(fs::read(left.join("f/in")).unwrap(), b"inside");
    assert_eq!(fs::metadata(left.join("f/..")).unwrap().ino(), fs::metadata(&left).unwrap().ino());
    assert_eq!((fs::metadata(&left).unwrap().nlink(), fs::metadata(&right).unwrap().nlink()), (3, 2));
    assert_eq!(errno(rename_with(&left, &s.path("nothing"), RenameFlags::EXCHANGE)), libc::ENOENT);
    assert_eq!(errno(rename_with(&left, &left.join("f"), RenameFlags::EXCHANGE)), libc::EINVAL);
}

/// So overlayfs hides a name of a layer below.
#[test]
fn a_rename_may_leave_a_whiteout() {
    let Some(s) = scratch() else { return };
    let is_whiteout = |path: &Path| {
        let stat = fs::symlink_metadata(path).unwrap();
        stat.file_type().is_char_device() && (stat.rdev(), stat.mode() & 0o7777, stat.nlink()) == (0, 0, 1)
    };
    let (left, right) = (s.dir("left", 0o755), s.dir("right", 0o755));
    fs::write(left.join("f"), "file").unwrap();
    rename_with(&left.join("f"), &left.join("g"), RenameFlags::WHITEOUT).unwrap();
    assert!(is_whiteout(&left.join("f")));
    fs::write(right.join("h"), "replaced").unwrap();
    let both = RenameFlags::WHITEOUT | RenameFlags::NOREPLACE;
    assert_eq!(errno(rename_with(&left.join("g"), &right.join("h"), both)), libc::EEXIST);
    rename_with(&left.join("g"), &right.join("h"), RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::read(right.join("h")).unwrap(), b"file");
    rename_with(&right.join("h"), &left.join("f"), both).unwrap_err();
    rename_with(&right.join("h"), &left.join("f"), RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::read(left.join("f")).unwrap(), b"file");
    fs::create_dir_all(left.join("d/in")).unwrap();
    rename_with(&left.join("d"), &right.join("d"), both).unwrap();
    assert!(right.join("d/in").is_dir());
    for hidden in [left.join("g"), left.join("d"), right.join("h")] {
        assert!(is_whiteout(&hidden), "{hidden:?}");
        fs::remove_file(&hidden).unwrap();
    }
    assert_eq!((fs::metadata(&left).unwrap().nlink(), fs::metadata(&right).unwrap().nlink()), (2, 3));
    let exchange = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert_eq!(errno(rename_with(&left.join("f"), &right.join("d"), exchange)), libc::EINVAL);
}

#[test]
fn a_replaced_file_lives_on_where_it_is_open() {
    let Some(s) = scratch() else { return };
    for size in [10, 300_000] {
        let old = s.file("old", &vec![b'o'; size]);
        let mut held = OpenOptions::new().read(true).append(true).open(&old).unwrap();
        fs::rename(s.file("new", b"new"), &old).unwrap();
        assert_eq!(held.metadata().unwrap().nlink(), 0);
        held.write_all(&vec![b'+'; size]).unwrap();
        let mut data = Vec::new();
        rustix::fs::seek(&held, rustix::fs::SeekFrom::Start(0)).unwrap();
        held.read_to_end(&mut data).unwrap();
        assert_eq!(data, [vec![b'o'; size], vec![b'+'; size]].concat());
        assert_eq!(fs::read(&old).unwrap(), b"new");
    }
}

#[test]
fn a_directory_never_ends_up_inside_itself() {
    let Some(s) = scratch() else { return };
    let a = s.dir("a", 0o755);
    fs::create_dir_all(a.join("b/c")).unwrap();
    assert_eq!(errno(fs::rename(&a, a.join("b/c/a"))), libc::EINVAL);
    assert_eq!(errno(fs::rename(a.join("b/c"), &a)), libc::ENOTEMPTY);
    fs::rename(a.join("b/c"), s.dir("empty", 0o755)).unwrap();
    assert_eq!(errno(fs::rename(s.file("f", b""), s.path("empty"))), libc::EISDIR);
    assert_eq!(errno(fs::rename(s.path("empty"), s.path("f"))), libc::ENOTDIR);
}

#[test]
fn renaming_one_link_onto_another_of_the_same_file_does_nothing() {
    let Some(s) = scratch() else { return };
    let a = s.file("a", b"x");
    fs::hard_link(&a, s.path("b")).unwrap();
    fs::rename(&a, s.path("b")).unwrap();
    assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
    assert!(s.path("b").exists());
}

#[test]
fn many_links_are_counted() {
    let Some(s) = scratch() else { return };
    let file = s.file("f", b"x");
    for n in 0..500 {
        fs::hard_link(&file, s.path(format!("l{n}"))).unwrap();
    }
    assert_eq!(fs::metadata(&file).unwrap().nlink(), 501);
    for n in 0..500 {
        fs::remove_file(s.path(format!("l{n}"))).unwrap();
    }
    assert_eq!(fs::metadata(&file).unwrap().nlink(), 1);
    assert_eq!(errno(fs::hard_link(s.dir("d", 0o755), s.path("e"))), libc::EPERM);
}

#[test]
fn an_unnamed_file_gets_its_name_by_linkat() {
    let Some(s) = scratch() else { return };
    for (name, size) in [("small", 100), ("large", 500_000)] {
        let mut file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(s.top()).unwrap();
        file.write_all(&vec![7; size]).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        assert_eq!(fs::read_dir(s.top()).unwrap().count(), usize::from(name == "large"));
        let fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        linkat(CWD, &*fd, CWD, s.path(name), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 1);
        assert_eq!(fs::read(s.path(name)).unwrap(), vec![7; size]);
        file.write_all(b"more").unwrap();
        assert_eq!(fs::metadata(s.path(name)).unwrap().len() as usize, size + 4);
    }
}

#[test]
fn an_exclusive_unnamed_file_never_gets_a_name() {
    let Some(s) = scratch() else { return };
    let flags = libc::O_TMPFILE | libc::O_EXCL;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(s.top()).unwrap();
    let fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let linked = linkat(CWD, &*fd, CWD, s.path("x"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(linked.unwrap_err().raw_os_error(), libc::ENOENT);
}

#[test]
fn an_unlinked_open_file_works_on_and_outgrows_its_place() {
    let Some(s) = scratch() else { return };
    let path = s.path("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"start", 0).unwrap();
    fs::remove_file(&path).unwrap();
    let data = crate::support::pattern(1, 400_000);
    std::os::unix::fs::FileExt::write_all_at(&file, &data, 5).unwrap();
    let again = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap();
    let mut back = vec![0; data.len() + 5];
    std::os::unix::fs::FileExt::read_exact_at(&again, &mut back, 0).unwrap();
    assert_eq!(back, [b"start".as_slice(), &data].concat());
    file.set_len(3).unwrap();
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let now = again.metadata().unwrap();
    assert_eq!((now.len(), now.nlink(), now.mode() & 0o777), (3, 0, 0o600));
    File::create_new(&path).unwrap();
}

#[test]
fn a_symlink_holds_up_to_4095_bytes_of_anything() {
    let Some(s) = scratch() else { return };
    const XFS: i64 = 0x5846_5342; // which stops at 1023
    let bytes_max = if rustix::fs::statfs(s.top()).unwrap().f_type == XFS { 1023 } else { 4095 };
    for target in ["x", "/", "../..", &"t".repeat(bytes_max)] {
        let path = s.path("l");
        symlink(target, &path).unwrap();
        assert_eq!(fs::read_link(&path).unwrap().to_str(), Some(target));
        assert_eq!(fs::symlink_metadata(&path).unwrap().len() as usize, target.len());
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(errno(symlink("t".repeat(4096), s.path("l"))), libc::ENAMETOOLONG);
    symlink("loop", s.path("loop")).unwrap();
    assert_eq!(errno(File::open(s.path("loop"))), libc::ELOOP);
}

#[test]
fn special_files_keep_their_kind_and_numbers() {
    let Some(s) = scratch() else { return };
    let (char_device, block_device) = (rustix::fs::makedev(1, 3), rustix::fs::makedev(259, 70_000));
    mknodat(CWD, s.path("null"), FileType::CharacterDevice, 0o666.into(), char_device).unwrap();
    mknodat(CWD, s.path("disk"), FileType::BlockDevice, 0o600.into(), block_device).unwrap();
    let (null, disk) = (fs::metadata(s.path("null")).unwrap(), fs::metadata(s.path("disk")).unwrap());
    assert!(null.file_type().is_char_device() && disk.file_type().is_block_device());
    assert_eq!((null.rdev(), disk.rdev()), (char_device, block_device));
    fs::write(s.path("null"), "swallowed").unwrap();
    assert!(fs::read(s.path("null")).unwrap().is_empty());
    let socket = UnixListener::bind(s.path("socket")).unwrap();
    assert!(fs::metadata(s.path("socket")).unwrap().file_type().is_socket());
    let path = s.path("socket");
    let client = std::thread::spawn(move || {
        std::os::unix::net::UnixStream::connect(path).unwrap().write_all(b"through the socket").unwrap();
    });
    let mut text = String::new();
    socket.accept().unwrap().0.read_to_string(&mut text).unwrap();
    client.join().unwrap();
    assert_eq!(text, "through the socket");
}

#[test]
fn a_fifo_passes_bytes_between_its_openers() {
    let Some(s) = scratch() else { return };
    let path = s.path("fifo");
    mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::hard_link(&path, s.path("same")).unwrap();
    let writer = {
        let path = path.clone();
        std::thread::spawn(move || fs::write(path, vec![9; 300_000]).unwrap())
    };
    assert_eq!(fs::read(s.path("same")).unwrap(), vec![9; 300_000]);
    writer.join().unwrap();
    let flags = libc::O_NONBLOCK;
    assert_eq!(errno(OpenOptions::new().write(true).custom_flags(flags).open(&path)), libc::ENXIO);
}

#[test]
fn a_removed_file_is_opened_again_by_who_holds_its_inode() {
    let Some(s) = scratch() else { return };
    let case = "a_removed_file_is_opened_again_by_who_holds_its_inode";
    for size in [10, 300_000] {
        let path = s.never_opened(&format!("{size}"));
        truncate(&path, size).unwrap();
        let held = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
        fs::remove_file(&path).unwrap();
        let again = File::open(format!("/proc/self/fd/{}", held.as_raw_fd()));
        if deviates(&s, case) {
            assert_eq!(errno(again), libc::ESTALE, "{size} bytes");
        } else {
            assert_eq!(again.unwrap().metadata().unwrap().len(), size);
        }
        assert_eq!(rustix::fs::fstat(&held).unwrap().st_nlink, 0);
    }
}
