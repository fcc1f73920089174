//! Listing: every entry once, cookies that hold while the directory changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    mem::MaybeUninit,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use rustix::{
    fs::{FileType, Mode, OFlags, RawDir, SeekFrom, openat, seek},
    io::Errno,
};

use crate::support::{errno, scratch};

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    ino: u64,
    kind: FileType,
    /// Where the entry after this one begins.
    next: u64,
}

/// At most `max` entries from where `dir` stands; then the position is that of the last one given.
fn read(dir: &File, max: usize, buffer_bytes: usize) -> Vec<Entry> {
    let mut buffer = vec![MaybeUninit::uninit(); buffer_bytes];
    let mut entries = Vec::new();
    let mut raw = RawDir::new(dir, &mut buffer);
    while entries.len() < max {
        let Some(entry) = raw.next() else { break };
        let entry = entry.unwrap();
        entries.push(Entry {
            name: entry.file_name().to_str().unwrap().to_owned(),
            ino: entry.ino(),
            kind: entry.file_type(),
            next: entry.next_entry_cookie(),
        });
    }
    if let Some(last) = entries.last() {
        seek(dir, SeekFrom::Start(last.next)).unwrap();
    }
    entries
}

fn read_all(dir: &File) -> Vec<Entry> {
    read(dir, usize::MAX, 32_768)
}

fn fill(top: &Path, names: impl Iterator<Item = String>) {
    for name in names {
        File::create(top.join(name)).unwrap();
    }
}

#[test]
fn entries_agree_with_stat() {
    let Some(s) = scratch() else { return };
    s.file("file", b"x");
    let sub = s.dir("dir", 0o755);
    std::os::unix::fs::symlink("file", s.path("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, s.path("fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
    let entries: BTreeMap<String, Entry> = read_all(&File::open(s.top()).unwrap())
        .into_iter()
        .map(|entry| (entry.name.clone(), entry))
        .collect();
    assert_eq!(entries.len(), 6);
    for (name, kind) in [
        ("file", FileType::RegularFile),
        ("dir", FileType::Directory),
        ("link", FileType::Symlink),
        ("fifo", FileType::Fifo),
        (".", FileType::Directory),
        ("..", FileType::Directory),
    ] {
        assert_eq!(entries[name].kind, kind, "{name}");
        assert_eq!(entries[name].ino, fs::symlink_metadata(s.path(name)).unwrap().ino(), "{name}");
    }
    let inner = read_all(&File::open(sub).unwrap());
    let up = inner.iter().find(|entry| entry.name == "..").unwrap();
    assert_eq!(up.ino, fs::metadata(s.top()).unwrap().ino());
}

#[test]
fn a_listing_goes_on_from_any_cookie() {
    let Some(s) = scratch() else { return };
    fill(s.top(), (0..2000).map(|n| format!("name-{n}")));
    let dir = File::open(s.top()).unwrap();
    let all = read_all(&dir);
    assert_eq!(all.len(), 2002);
    assert_eq!(all.iter().map(|entry| &entry.name).collect::<BTreeSet<_>>().len(), 2002);
    for at in (0..all.len() - 1).step_by(37) {
        seek(&dir, SeekFrom::Start(all[at].next)).unwrap();
        let rest = read(&dir, 5, 600);
        let expected: Vec<_> = all[at + 1..].iter().take(rest.len()).map(|entry| &entry.name).collect();
        assert!(!rest.is_empty());
        assert_eq!(rest.iter().map(|entry| &entry.name).collect::<Vec<_>>(), expected, "from entry {at}");
    }
    seek(&dir, SeekFrom::Start(0)).unwrap();
    assert_eq!(read_all(&dir).len(), 2002, "rewound");
}

#[test]
fn what_stays_is_listed_once_while_the_rest_changes() {
    let Some(s) = scratch() else { return };
    fill(s.top(), (0..1500).map(|n| format!("stays-{n}")));
    fill(s.top(), (0..1500).map(|n| format!("goes-{n}")));
    let dir = File::open(s.top()).unwrap();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for round in 0.. {
        let some = read(&dir, 100, 4096);
        if some.is_empty() {
            break;
        }
        some.into_iter().for_each(|entry| *seen.entry(entry.name).or_default() += 1);
        for n in (0..1500).filter(|n| n % 31 == round) {
            let _ = fs::remove_file(s.path(format!("goes-{n}")));
        }
        fill(s.top(), (0..40).map(|n| format!("comes-{round}-{n}")));
    }
    for n in 0..1500 {
        assert_eq!(seen.get(&format!("stays-{n}")), Some(&1), "stays-{n}");
    }
    assert!(seen.values().all(|times| *times == 1), "nothing twice");
}

#[test]
fn a_cookie_holds_when_its_own_entry_is_removed() {
    let Some(s) = scratch() else { return };
    fill(s.top(), (0..300).map(|n| format!("{n}")));
    let dir = File::open(s.top()).unwrap();
    let all = read_all(&dir);
    let at = all.iter().position(|entry| entry.name == "150").unwrap().clamp(3, 290);
    for entry in &all[at - 1..=at] {
        if entry.name != "." && entry.name != ".." {
            fs::remove_file(s.path(&entry.name)).unwrap();
        }
    }
    seek(&dir, SeekFrom::Start(all[at].next)).unwrap();
    assert_eq!(read(&dir, 1, 4096)[0].name, all[at + 1].name);
}

#[test]
fn everything_can_be_removed_while_it_is_listed() {
    let Some(s) = scratch() else { return };
    fill(s.top(), (0..3000).map(|n| format!("file {n}")));
    let mut removed = 0;
    for entry in fs::read_dir(s.top()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, 3000);
    assert_eq!(fs::read_dir(s.top()).unwrap().count(), 0);
}

#[test]
fn a_removed_directory_that_is_open_is_empty_and_takes_nothing() {
    let Some(s) = scratch() else { return };
    let path = s.dir("d", 0o755);
    let dir = File::open(&path).unwrap();
    fs::remove_dir(&path).unwrap();
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    match RawDir::new(&dir, &mut buffer).next() {
        Some(Err(error)) => {
            assert_eq!(error.raw_os_error(), libc::ENOENT, "what Linux says of a dead directory")
        }
        Some(Ok(entry)) => assert!(entry.file_name().to_bytes().starts_with(b".")),
        None => {}
    }
    let made = rustix::fs::mkdirat(&dir, "x", 0o755.into());
    assert_eq!(made.unwrap_err().raw_os_error(), libc::ENOENT);
}

#[test]
fn the_link_count_of_a_directory_counts_its_subdirectories() {
    let Some(s) = scratch() else { return };
    let links = |path: &Path| fs::metadata(path).unwrap().nlink();
    assert_eq!(links(s.top()), 2);
    let (a, b) = (s.dir("a", 0o755), s.dir("b", 0o755));
    s.file("f", b"");
    assert_eq!((links(s.top()), links(&a)), (4, 2));
    fs::rename(&b, a.join("b")).unwrap();
    assert_eq!((links(s.top()), links(&a)), (3, 3));
    fs::remove_dir(a.join("b")).unwrap();
    assert_eq!(links(&a), 2);
    assert_eq!(errno(fs::remove_dir(s.top())), libc::ENOTEMPTY);
}

/// A current directory that another removes, say.
#[test]
fn a_directory_removed_under_somebody_is_still_his_and_empty() {
    let Some(s) = scratch() else { return };
    let path = s.dir("d", 0o755);
    let held = File::open(&path).unwrap();
    // The server is told that it is gone, and not by a close.
    let looked_up = openat(&held, ".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    drop(held);
    fs::remove_dir(&path).unwrap();
    let again: File =
        openat(&looked_up, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap().into();
    // Linux has no such directory to list; for ls(1) that is an end.
    let mut buffer = vec![MaybeUninit::uninit(); 1024];
    assert_eq!(RawDir::new(&again, &mut buffer).next().map(Result::err), Some(Some(Errno::NOENT)));
    again.set_permissions(PermissionsExt::from_mode(0o710)).unwrap();
    let told = again.metadata().unwrap();
    assert_eq!((told.mode() & 0o7777, told.nlink()), (0o710, 0));
    assert_eq!(openat(&again, "f", OFlags::CREATE | OFlags::RDWR, Mode::RUSR).err(), Some(Errno::NOENT));
    let listed = rustix::fs::flistxattr(&again, &mut [0; 64]);
    assert_eq!(listed, Ok(0));
}
