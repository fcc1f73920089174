//! Set-user-id and set-group-id bits of files that are written: who loses them, and when.
//!
//! Each case is tried on a small file and on one that is large from the start, and on one that grows while it is
//! open: whoever writes, the bits go before his bytes can be read, and only then. The superuser keeps them.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use crate::{
    ledger::{deviates, is_written_past_pages},
    support::{Mapping, Scratch, as_user, errno, scratch, truncate},
    users::{ALICE, BOB, GUESTS, STAFF, mode, owned, root},
};

const SMALL: usize = 10;
const LARGE: usize = 300_000;

fn chmod(path: &Path, bits: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Alice's file of `size` bytes which all may write, closed.
fn file(s: &Scratch, name: &str, size: usize) -> PathBuf {
    let path = owned(s, name, ALICE, STAFF, 0o666);
    fs::write(&path, vec![1; size]).unwrap();
    path
}

/// The same, but nobody has ever opened it.
fn never_opened(s: &Scratch, name: &str, size: usize) -> PathBuf {
    let path = s.never_opened(name);
    chown(&path, Some(ALICE), Some(STAFF)).unwrap();
    chmod(&path, 0o666);
    truncate(&path, size as u64).unwrap();
    path
}

fn as_bob<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    as_user(BOB, GUESTS, &[], work)
}

#[test]
fn root_may_set_the_bits_on_an_open_file_and_write() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    for (number, bits) in [0o4755, 0o2755, 0o6777, 0o2644].into_iter().enumerate() {
        for (size, grown) in [(SMALL, SMALL), (SMALL, LARGE), (LARGE, LARGE), (LARGE, SMALL)] {
            let path = file(&s, &format!("{number}-{size}-{grown}"), size);
            let open_file = open(&path);
            open_file.set_len(grown as u64).unwrap();
            open_file.write_all_at(b"before", 0).unwrap();
            chmod(&path, bits);
            open_file.write_all_at(b"after", 0).unwrap();
            open_file.write_all_at(b"at the end", grown as u64).unwrap();
            assert_eq!(mode(&path), bits, "{size} to {grown}, open");
            drop(open_file);
            assert_eq!(mode(&path), bits, "{size} to {grown}, closed");
            // Opened with the bits on it, it is the same.
            let again = open(&path);
            again.write_all_at(b"again", 3).unwrap();
            drop(again);
            assert_eq!(mode(&path), bits, "{size} to {grown}, opened again");
        }
    }
}

#[test]
fn another_loses_them_with_his_first_byte() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    for (number, (bits, left)) in
        [(0o4666, 0o666), (0o2676, 0o676), (0o6777, 0o777), (0o4711, 0o711)].into_iter().enumerate()
    {
        for (size, grown) in [(SMALL, SMALL), (SMALL, LARGE), (LARGE, LARGE)] {
            let path = file(&s, &format!("{number}-{size}-{grown}"), size);
            let bobs = as_bob(|| open(&path));
            bobs.set_len(grown as u64).unwrap();
            chmod(&path, bits);
            assert_eq!(mode(&path), bits);
            as_bob(|| bobs.write_all_at(b"x", 0).unwrap());
            assert_eq!(mode(&path), left, "{size} to {grown}, at once");
            chmod(&path, bits);
            drop(bobs);
            assert_eq!(mode(&path), bits, "{size} to {grown}: given again after his write, they stay");
        }
    }
}

#[test]
fn of_several_that_have_it_open_the_writer_counts() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    for size in [SMALL, LARGE] {
        let path = file(&s, &format!("{size}"), size);
        chmod(&path, 0o6777);
        let (roots, bobs) = (open(&path), as_bob(|| open(&path)));
        let alices = as_user(ALICE, STAFF, &[], || open(&path));
        roots.write_all_at(b"root", 0).unwrap();
        // Who writes counts, not who has opened.
        bobs.write_all_at(b"root again", 0).unwrap();
        assert_eq!(mode(&path), 0o6777, "{size}: by root");
        as_bob(|| roots.write_all_at(b"bob", 0).unwrap());
        assert_eq!(mode(&path), 0o777, "{size}: by Bob, through root's open");
        chmod(&path, 0o6777);
        as_user(ALICE, STAFF, &[], || alices.write_all_at(b"owner", 0).unwrap());
        assert_eq!(mode(&path), 0o777, "{size}: the owner may not keep them either");
        chmod(&path, 0o6777);
        drop((alices, bobs));
        roots.write_all_at(b"root", 0).unwrap();
        drop(roots);
        assert_eq!(mode(&path), 0o6777, "{size}: after all have closed it");
    }
}

#[test]
fn every_way_to_change_bytes_takes_them() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let source = s.file("source", &vec![7; 5000]);
    let ways: [(&str, fn(&File, &File)); 6] = [
        ("write", |file, _| file.write_all_at(b"x", 7).unwrap()),
        ("append", |file, _| {
            rustix::fs::fcntl_setfl(file, rustix::fs::OFlags::APPEND).unwrap();
            file.write_all_at(b"x", 0).unwrap();
        }),
        ("truncate", |file, _| file.set_len(5).unwrap()),
        ("copy", |file, source| {
            let copied = rustix::fs::copy_file_range(source, Some(&mut 0), file, Some(&mut 0), 4000);
            assert_eq!(copied.unwrap(), 4000);
        }),
        ("sendfile", |file, source| {
            assert_eq!(rustix::fs::sendfile(file, source, Some(&mut 0), 4000).unwrap(), 4000);
        }),
        ("allocate", |file, _| {
            rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, 400_000).unwrap();
        }),
    ];
    for size in [SMALL, LARGE] {
        for (what, work) in ways {
            let path = file(&s, &format!("{what}-{size}"), size);
            let (roots, bobs) = (open(&path), as_bob(|| open(&path)));
            let source = File::open(&source).unwrap();
            chmod(&path, 0o6777);
            work(&roots, &source);
            assert_eq!(mode(&path), 0o6777, "{what} of {size} bytes by root");
            as_bob(|| work(&bobs, &source));
            assert_eq!(mode(&path), 0o777, "{what} of {size} bytes by another");
        }
    }
}

#[test]
fn direct_writes_and_truncating_opens_take_them_too() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    for size in [SMALL, LARGE] {
        let path = file(&s, &format!("{size}"), size);
        let page = aligned_page();
        let direct = |flags| OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | flags).open(&path);
        let (roots, bobs) = (direct(0).unwrap(), as_bob(|| direct(0).unwrap()));
        chmod(&path, 0o6777);
        roots.write_all_at(page.bytes(), 0).unwrap();
        assert_eq!(mode(&path), 0o6777, "{size} bytes, by root");
        as_bob(|| bobs.write_all_at(page.bytes(), 0).unwrap());
        drop((roots, bobs));
        assert_eq!(mode(&path), 0o777, "{size} bytes, by another");
        for flags in [0, libc::O_TRUNC] {
            chmod(&path, 0o6777);
            drop(OpenOptions::new().write(true).custom_flags(flags).open(&path).unwrap());
            assert_eq!(mode(&path), 0o6777, "{size} bytes, opened by root with {flags:o}");
        }
        chmod(&path, 0o6777);
        drop(as_bob(|| OpenOptions::new().write(true).truncate(true).open(&path).unwrap()));
        assert_eq!(mode(&path), 0o777, "{size} bytes, cut by another's open");
    }
}

#[test]
fn a_change_of_owner_to_nobody_in_particular_is_the_owners_to_make() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    for size in [SMALL, LARGE] {
        let path = never_opened(&s, &format!("{size}"), size);
        chmod(&path, 0o6777);
        assert_eq!(errno(as_bob(|| chown(&path, None, None))), libc::EPERM);
        assert_eq!(mode(&path), 0o6777, "a stranger");
        as_user(ALICE, STAFF, &[], || chown(&path, None, None)).unwrap();
        assert_eq!(mode(&path), 0o777, "the owner");
        chmod(&path, 0o6777);
        chown(&path, None, None).unwrap();
        assert_eq!(mode(&path), 0o777, "root");
    }
    let dir = s.dir("dir", 0o2777);
    chown(&dir, None, None).unwrap();
    assert_eq!(mode(&dir), 0o2777, "a directory's bit means something else");
}

#[test]
fn outsiders_leave_a_set_group_id_bit_without_group_execute() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let left = match deviates(&s, "outsiders_leave_a_set_group_id_bit_without_group_execute") {
        true => 0o2666,
        false => 0o666,
    };
    for size in [SMALL, LARGE] {
        let path = file(&s, &format!("{size}"), size);
        for (groups, left) in [(&[][..], left), (&[STAFF], 0o2666)] {
            chmod(&path, 0o6666);
            as_user(BOB, GUESTS, groups, || open(&path).write_all_at(b"x", 0)).unwrap();
            assert_eq!(mode(&path), left, "{size} bytes, by one of {groups:?}");
        }
    }
}

const CAPABILITY: &str = "security.capability";

/// `cap_net_raw=ep`, in revision 2 (linux/capability.h).
fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn what_a_mapping_stores_leaves_the_capabilities() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    for size in [SMALL, LARGE] {
        let path = file(&s, &format!("{size}"), size);
        let mut mapping = Mapping::new(open(&path), size);
        mapping.bytes()[0] = b'x';
        rustix::fs::setxattr(&path, CAPABILITY, &capability(), rustix::fs::XattrFlags::empty()).unwrap();
        mapping.bytes()[1] = b'y';
        mapping.sync();
        drop(mapping);
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(&path, CAPABILITY, &mut value).unwrap();
        assert_eq!(value[..length], capability(), "{size} bytes");
    }
}

#[test]
fn roots_write_takes_set_id_bits_with_the_capabilities() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let deviates = deviates(&s, "roots_write_takes_set_id_bits_with_the_capabilities");
    for size in [SMALL, LARGE] {
        // Past the pages it is past the kernel's own removal, and the capabilities are ours to remove.
        let left = if deviates && !is_written_past_pages(&s, size == LARGE) { 0o755 } else { 0o6755 };
        let path = never_opened(&s, &format!("{size}"), size);
        let write = |bits| {
            chmod(&path, bits);
            rustix::fs::setxattr(&path, CAPABILITY, &capability(), rustix::fs::XattrFlags::empty()).unwrap();
            open(&path).write_all_at(b"x", 0).unwrap();
            let gone = rustix::fs::getxattr(&path, CAPABILITY, &mut [0; 64]);
            assert_eq!(gone, Err(rustix::io::Errno::NODATA), "{size} bytes of mode {bits:o}");
        };
        write(0o6755);
        assert_eq!(mode(&path), left, "{size} bytes");
        write(0o755);
        assert_eq!(mode(&path), 0o755, "{size} bytes");
    }
}

#[test]
fn a_stranger_may_change_the_owner_to_nobody_in_particular_while_it_is_written() {
    let Some(s) = scratch().filter(|_| root()) else { return };
    let case = "a_stranger_may_change_the_owner_to_nobody_in_particular_while_it_is_written";
    let left = if deviates(&s, case) { 0o777 } else { 0o6777 };
    for size in [SMALL, LARGE] {
        let path = file(&s, &format!("{size}"), size);
        chmod(&path, 0o6777);
        let alices = as_user(ALICE, STAFF, &[], || open(&path));
        let outcome = as_bob(|| chown(&path, None, None));
        assert_eq!((outcome.is_ok(), mode(&path)), (left == 0o777, left), "{size} bytes");
        drop(alices);
    }
}

/// A page for `O_DIRECT`, which wants its buffers aligned.
struct Page {
    room: Vec<u8>,
    from: usize,
}

impl Page {
    fn bytes(&self) -> &[u8] {
        &self.room[self.from..][..4096]
    }
}

fn aligned_page() -> Page {
    let room = vec![3; 8192];
    let from = room.as_ptr().align_offset(4096);
    Page { room, from }
}
