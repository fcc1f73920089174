//! The operations through a real mount, over both transports.

mod common;

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{Read, Seek, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    },
};

use common::on_each;
use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, RenameFlags, SeekFrom, StatxFlags, XattrFlags};

#[test]
fn files_are_written_read_and_cut() {
    on_each(|on| {
        let path = on.path("file");
        let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
        fs::write(&path, &data).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.write_all_at(b"inside", 1_000_001).unwrap();
        let mut back = [0; 8];
        file.read_exact_at(&mut back, 1_000_000).unwrap();
        assert_eq!(back[1..7], *b"inside");
        file.set_len(10).unwrap();
        assert_eq!((fs::read(&path).unwrap().len(), file.metadata().unwrap().len()), (10, 10));
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        log.write_all(b"end").unwrap();
        assert_eq!(fs::read(&path).unwrap()[10..], *b"end");
        OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    });
}

#[test]
fn large_transfers_past_the_page_cache_arrive_whole() {
    on_each(|on| {
        let path = on.path("direct");
        let open = |write| {
            OpenOptions::new()
                .read(true)
                .write(write)
                .create(write)
                .custom_flags(OFlags::DIRECT.bits() as i32)
                .open(&path)
                .unwrap()
        };
        let mut pages = vec![0_u8; (4 << 20) + 4096];
        let skip = pages.as_ptr().align_offset(4096);
        pages.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n / 4099) as u8);
        let data = &pages[skip..skip + (4 << 20)];
        open(true).write_all_at(data, 0).unwrap();
        let mut back = vec![0_u8; (4 << 20) + 4096];
        let at = back.as_ptr().align_offset(4096);
        open(false).read_exact_at(&mut back[at..at + (4 << 20)], 0).unwrap();
        assert!(back[at..at + (4 << 20)] == *data);
    });
}

#[test]
fn names_are_made_linked_moved_and_removed() {
    on_each(|on| {
        let at = |name| on.path(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/a"), "a").unwrap();
        fs::hard_link(at("dir/a"), at("dir/b")).unwrap();
        assert_eq!(fs::metadata(at("dir/b")).unwrap().nlink(), 2);
        symlink("dir/a", at("link")).unwrap();
        assert_eq!(fs::read_link(at("link")).unwrap().to_str(), Some("dir/a"));
        assert_eq!(fs::read(at("link")).unwrap(), b"a");
        fs::rename(at("dir/a"), at("c")).unwrap();
        assert!(!at("dir/a").exists());
        fs::write(at("d"), "d").unwrap();
        let rename = |flags| rustix::fs::renameat_with(CWD, at("c"), CWD, at("d"), flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!((fs::read(at("c")).unwrap(), fs::read(at("d")).unwrap()), (b"d".to_vec(), b"a".to_vec()));
        assert_eq!(rename(RenameFlags::WHITEOUT), Err(rustix::io::Errno::INVAL));
        assert_eq!(fs::remove_dir(at("dir")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
        fs::remove_file(at("dir/b")).unwrap();
        fs::remove_dir(at("dir")).unwrap();
        let fifo = rustix::fs::mknodat(CWD, at("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0);
        fifo.unwrap();
        assert_eq!(fs::symlink_metadata(at("fifo")).unwrap().mode(), 0o010_600);
        let long = at(&"x".repeat(256));
        assert_eq!(fs::write(long, "").unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));
    });
}

#[test]
fn attributes_are_set_and_told() {
    on_each(|on| {
        let path = on.path("file");
        fs::write(&path, "0123456789").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_007, 89);
        file.set_modified(time).unwrap();
        let told = fs::metadata(&path).unwrap();
        assert_eq!((told.uid(), told.gid(), told.len()), (12, 34, 10));
        assert_eq!((told.mtime(), told.mtime_nsec()), (1_000_000_007, 89));
        let statx = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::ALL).unwrap();
        assert!(statx.stx_mask & StatxFlags::BTIME.bits() != 0 && statx.stx_btime.tv_sec > 1_700_000_000);
        let space = rustix::fs::statvfs(&path).unwrap();
        assert_eq!((space.f_bsize, space.f_namemax), (4096, 255));
    });
}

#[test]
fn extended_attributes_are_kept() {
    on_each(|on| {
        let path = on.path("file");
        fs::write(&path, "").unwrap();
        let value = vec![7; 60_000];
        rustix::fs::setxattr(&path, "user.large", &value, XattrFlags::CREATE).unwrap();
        let again = rustix::fs::setxattr(&path, "user.large", b"", XattrFlags::CREATE);
        assert_eq!(again, Err(rustix::io::Errno::EXIST));
        let mut back = vec![0; 65_536];
        assert_eq!(rustix::fs::getxattr(&path, "user.large", &mut back[..]), Ok(60_000));
        assert!(back[..60_000] == value);
        assert_eq!(rustix::fs::getxattr(&path, "user.large", &mut back[..10]), Err(rustix::io::Errno::RANGE));
        rustix::fs::setxattr(&path, "user.small", b"x", XattrFlags::empty()).unwrap();
        let len = rustix::fs::listxattr(&path, &mut back[..]).unwrap();
        assert_eq!(&back[..len], b"user.large\0user.small\0");
        rustix::fs::removexattr(&path, "user.large").unwrap();
        assert_eq!(rustix::fs::getxattr(&path, "user.large", &mut back[..]), Err(rustix::io::Errno::NODATA));
    });
}

#[test]
fn ten_thousand_entries_are_listed_once_each_and_positions_hold() {
    on_each(|on| {
        let dir = on.path("many");
        fs::create_dir(&dir).unwrap();
        for number in 0..10_000 {
            File::create(dir.join(format!("file {number}"))).unwrap();
        }
        let names: BTreeSet<_> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!((names.len(), fs::read_dir(&dir).unwrap().count()), (10_000, 10_000));
        // With attributes: each is looked up on the way, so that this sends READDIRPLUS.
        let sizes: u64 =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(sizes, 0);
        let open = File::open(&dir).unwrap();
        let mut listing = rustix::fs::Dir::read_from(&open).unwrap();
        let (mark, next) = loop {
            let entry = listing.read().unwrap().unwrap();
            if entry.file_name().to_bytes() == b"file 5000" {
                break (entry.offset(), listing.read().unwrap().unwrap().file_name().to_owned());
            }
        };
        for number in 0..1000 {
            fs::remove_file(dir.join(format!("file {number}"))).unwrap();
        }
        listing.seek(mark).unwrap();
        let after = listing.read().unwrap().unwrap();
        assert_eq!(after.file_name(), next.as_c_str());
    });
}

#[test]
fn the_less_common_calls_work() {
    on_each(|on| {
        let path = on.path("file");
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 8192).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8192);
        file.write_all(&[1; 8192]).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 0, 4096).unwrap();
        file.rewind().unwrap();
        let mut back = Vec::new();
        file.read_to_end(&mut back).unwrap();
        assert_eq!((back[0], back[4096], back.len()), (0, 1, 8192));
        let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(10)), Ok(10));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(10)), Ok(8192));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(9000)), Err(rustix::io::Errno::NXIO));
        let copy = File::create(on.path("copy")).unwrap();
        assert_eq!(rustix::fs::copy_file_range(&file, Some(&mut 4096), &copy, Some(&mut 0), 4096), Ok(4096));
        assert_eq!(fs::read(on.path("copy")).unwrap(), [1; 4096]);
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        File::open(on.dir.path()).unwrap().sync_all().unwrap();
        rustix::fs::syncfs(&file).unwrap();
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let unnamed = rustix::fs::open(on.dir.path(), flags, 0o600.into()).unwrap();
        rustix::io::write(&unnamed, b"born without a name").unwrap();
        rustix::fs::linkat(&unnamed, c"", CWD, on.path("named"), AtFlags::EMPTY_PATH).unwrap();
        assert_eq!(fs::read(on.path("named")).unwrap(), b"born without a name");
    });
}

#[test]
fn an_open_file_is_ready_to_be_read_and_written_at_once() {
    use rustix::event::{FdSetElement, PollFd, PollFlags, Timespec, fd_set_insert, poll, select};
    on_each(|on| {
        let path = on.path("file");
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
        // The second time the kernel knows, and asks no more.
        for _ in 0..2 {
            let ready = PollFlags::IN | PollFlags::OUT;
            let mut files = [PollFd::new(&file, ready | PollFlags::PRI)];
            assert_eq!(poll(&mut files, Some(&patience)), Ok(1));
            assert_eq!(files[0].revents(), ready);
            let number = file.as_raw_fd();
            let mut set = [FdSetElement::default(); 16];
            fd_set_insert(&mut set, number);
            let (mut read, mut write, mut except) = (set, set, set);
            // SAFETY: the only descriptor in the sets is open.
            let found = unsafe {
                select(number + 1, Some(&mut read), Some(&mut write), Some(&mut except), Some(&patience))
            };
            assert_eq!(found, Ok(2));
        }
    });
}

#[test]
fn an_ioctl_that_nobody_knows_is_enotty() {
    /// `_IO('x', 1)`, `_IOR('x', 2, u64)` and `_IOW('x', 3, u64)`; `FS_IOC_GETFLAGS`.
    const UNKNOWN: [u32; 4] = [0x7801, 0x8008_7802, 0x4008_7803, 0x8008_6601];
    on_each(|on| {
        let file = File::create(on.path("file")).unwrap();
        let directory = File::open(on.dir.path()).unwrap();
        for on in [&file, &directory] {
            for number in UNKNOWN {
                let mut value = 0_u64;
                // SAFETY: none of them takes or gives more than the 8 bytes behind the pointer, which outlives the call.
                let outcome = unsafe { libc::ioctl(on.as_raw_fd(), number as _, &raw mut value) };
                let errno = std::io::Error::last_os_error().raw_os_error();
                assert_eq!((outcome, errno), (-1, Some(libc::ENOTTY)), "{number:#x}");
            }
        }
    });
}

#[test]
fn a_new_files_owner_mode_and_group_follow_the_rules_of_its_directory() {
    on_each(|on| {
        let dir = on.path("shared");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, None, Some(77)).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o2777)).unwrap();
        fs::create_dir(dir.join("below")).unwrap();
        let below = fs::metadata(dir.join("below")).unwrap();
        assert_eq!((below.gid(), below.mode() & 0o2000), (77, 0o2000));
        // The kernel does not apply the umask (DONT_MASK): the file system has, once.
        let made = File::options().write(true).create_new(true).mode(0o666).open(dir.join("file")).unwrap();
        let umask = rustix::process::umask(0o022.into());
        rustix::process::umask(umask);
        assert_eq!(made.metadata().unwrap().mode() & 0o777, 0o666 & !umask.bits());
    });
}
