//! Names: removed while open, replaced, without a name, and after their end.

mod common;

use cofs_fs::{Context, DataPath, FileSystem, ListOf, run};
use cofs_metadata::MetadataDriver;
use cofs_types::{
    Authority, Credentials, FileKind, FsError, InodeId, NewInode, OpenFlags, RenameMode, SetAttributes,
    SetTime, Timestamp, XattrMode, XattrName,
};
use common::*;

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    let volume = World::new().mount();
    for size in [100, INLINE_MAX * 2] {
        let (ino, file) = volume.create("a");
        volume.write(ino, file, 0, &pattern(size, 1));
        let second = volume.open(ino, RW);
        volume.unlink("a");
        assert!(matches!(volume.lookup("a"), Err(FsError::NotFound)));
        assert_eq!(volume.stat(ino).nlink, 0);
        volume.close(ino, file);
        volume.write(ino, second, size as u64, b"more");
        assert_eq!(volume.read(ino, second, 0, size + 10).len(), size + 4);
        assert_eq!(volume.stat(ino).size_bytes, size as u64 + 4);
        let files = volume.fs.statfs_files();
        volume.close(ino, second);
        assert_eq!(volume.fs.statfs_files(), files - 1);
        assert!(matches!(run(volume.fs.open(&CONTEXT, ino, RO)), Err(FsError::Stale)));
        volume.fs.collect().unwrap();
        assert_eq!(volume.objects_in_use(), 0);
    }
}

trait Files {
    fn statfs_files(&self) -> u64;
}

impl<F: FileSystem> Files for F {
    fn statfs_files(&self) -> u64 {
        let space = run(self.statfs()).unwrap();
        space.files - space.files_free
    }
}

#[test]
fn an_unlinked_object_file_goes_with_its_idle_object() {
    let (world, kernel) = World::with_passthrough();
    let volume = world.mount();
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    volume.close(ino, file);
    let file = volume.open(ino, RO);
    volume.close(ino, file);
    assert_eq!(kernel.files.lock().len(), 1, "kept at hand");
    volume.unlink("a");
    assert_eq!(kernel.files.lock().len(), 0);
    volume.fs.collect().unwrap();
    assert_eq!(volume.objects_in_use(), 0);
}

#[test]
fn a_removed_inode_tells_its_last_attributes_and_takes_others_until_it_is_forgotten() {
    let volume = World::new().mount();
    let made = run(volume.fs.make(&CONTEXT, InodeId::ROOT, name("d"), new_directory())).unwrap();
    run(volume.fs.rmdir(&CONTEXT, InodeId::ROOT, name("d"))).unwrap();
    let ino = made.attributes.ino;
    assert_eq!((volume.stat(ino).nlink, volume.stat(ino).kind), (0, FileKind::Directory));

    // Whose current directory it is opens it, and sets what he may.
    run(volume.fs.opendir(&CONTEXT, ino, RO)).unwrap();
    let long_ago = Timestamp::new(7, 5).unwrap();
    let change = SetAttributes {
        permissions: Some(0o2710),
        gid: Some(9),
        mtime: Some(SetTime::To(long_ago)),
        ..SetAttributes::default()
    };
    let told = run(volume.fs.setattr(&CONTEXT, ino, None, &change)).unwrap().attributes;
    assert_eq!((told.permissions, told.gid, told.mtime, told.nlink), (0o2710, 9, long_ago, 0));
    assert_eq!(volume.stat(ino), told);
    let another = Credentials { uid: 7, gid: 7, groups: &[], authority: Authority::Unchecked };
    let refused = run(volume.fs.setattr(&Context { credentials: another, ..CONTEXT }, ino, None, &change));
    assert!(matches!(refused, Err(FsError::NotPermitted)), "{refused:?}");
    let attribute = XattrName::new(b"user.a").unwrap();
    assert!(matches!(run(volume.fs.getxattr(&CONTEXT, ino, attribute)), Err(FsError::NoAttribute)));
    assert!(run(volume.fs.listxattr(&CONTEXT, ino)).unwrap().is_empty());

    assert!(!volume.fs.forget(ino, 1));
    assert!(matches!(run(volume.fs.getattr(ino, None)), Err(FsError::Stale)));
    assert!(matches!(run(volume.fs.setattr(&CONTEXT, ino, None, &change)), Err(FsError::Stale)));
    assert!(matches!(run(volume.fs.opendir(&CONTEXT, ino, RO)), Err(FsError::Stale)));
    assert!(matches!(run(volume.fs.getxattr(&CONTEXT, ino, attribute)), Err(FsError::Stale)));
}

/// Of a file that is closed and removed its attributes stay as they were last, for who holds it by `O_PATH`.
#[test]
fn the_last_close_of_an_unlinked_file_leaves_its_last_attributes() {
    let (passing, kernel) = World::with_passthrough();
    for (world, kernel) in [(World::new(), None), (passing, Some(kernel))] {
        let volume = world.mount();
        for (before, after) in [(100, 200), (100, INLINE_MAX * 2), (INLINE_MAX * 2, INLINE_MAX * 3)] {
            let (ino, file) = volume.create("a");
            volume.write(ino, file, 0, &pattern(before, 1));
            volume.close(ino, file);
            let file = volume.open(ino, RW);
            volume.unlink("a");
            match (&kernel, file.data_path) {
                (Some(kernel), DataPath::Passthrough(id)) => kernel.write(id, 0, &pattern(after, 2)),
                _ => volume.write(ino, file, 0, &pattern(after, 2)),
            }
            let change = SetAttributes { permissions: Some(0o600), gid: Some(3), ..SetAttributes::default() };
            let last = volume.setattr(ino, change).unwrap();
            assert_eq!((last.size_bytes, last.permissions, last.nlink), (after as u64, 0o600, 0));
            volume.close(ino, file);
            assert!(matches!(run(volume.fs.open(&CONTEXT, ino, RO)), Err(FsError::Stale)));
            assert_eq!(volume.stat(ino), last);
            volume.fs.forget(ino, 1);
            assert!(matches!(run(volume.fs.getattr(ino, None)), Err(FsError::Stale)));
        }
    }
}

/// One that stays openable tells what was last done to it, whether it is open or not.
#[test]
fn a_replaced_file_tells_what_was_last_done_to_it() {
    let volume = World::new().mount();
    let (ino, file) = volume.create("target");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    let (other, source) = volume.create("source");
    volume.close(other, source);
    let (from, to) = ((InodeId::ROOT, name("source")), (InodeId::ROOT, name("target")));
    run(volume.fs.rename(&CONTEXT, from, to, RenameMode::Replace)).unwrap();
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 3, 1));
    let open = volume.stat(ino);
    volume.close(ino, file);
    assert_eq!(volume.stat(ino), open);
    assert_eq!(volume.truncate(ino, 3).unwrap().size_bytes, 3);
    let permissions = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    let last = volume.setattr(ino, permissions).unwrap();
    assert_eq!(last.size_bytes, 3);
    assert!(volume.fs.forget(ino, 1));
    run(volume.fs.forgotten(ino));
    assert!(matches!(run(volume.fs.getattr(ino, None)), Err(FsError::Stale)));
    volume.fs.collect().unwrap();
    assert_eq!(volume.objects_in_use(), 0);
}

#[test]
fn a_file_without_a_name_goes_unless_it_is_linked() {
    let volume = World::new().mount();
    let make = |flags| run(volume.fs.tmpfile(&CONTEXT, InodeId::ROOT, new_file(0o600), flags)).unwrap();
    let (entry, file) = make(RW);
    let lost = entry.attributes.ino;
    volume.write(lost, file, 0, b"gone");
    volume.close(lost, file);
    assert!(matches!(run(volume.fs.open(&CONTEXT, lost, RO)), Err(FsError::Stale)));

    let (entry, file) = make(RW);
    let kept = entry.attributes.ino;
    volume.write(kept, file, 0, &pattern(INLINE_MAX * 2, 5));
    run(volume.fs.link(&CONTEXT, kept, InodeId::ROOT, name("kept"))).unwrap();
    volume.close(kept, file);
    assert_eq!(volume.contents(kept), pattern(INLINE_MAX * 2, 5));
    assert_eq!(volume.lookup("kept").unwrap().attributes.nlink, 1);

    let (entry, file) = make(OpenFlags { exclusive: true, ..RW });
    let refused = run(volume.fs.link(&CONTEXT, entry.attributes.ino, InodeId::ROOT, name("never")));
    assert!(matches!(refused, Err(FsError::NotFound)), "{refused:?}");
    volume.close(entry.attributes.ino, file);
}

#[test]
fn a_file_replaced_by_rename_goes_when_it_is_closed_and_forgotten() {
    let volume = World::new().mount();
    for number in 0..2 {
        let (old, old_file) = volume.create("target");
        volume.write(old, old_file, 0, &pattern(INLINE_MAX * 2, 1));
        if number == 0 {
            volume.close(old, old_file);
        }
        let (new, file) = volume.create("source");
        volume.close(new, file);
        let (from, to) = ((InodeId::ROOT, name("source")), (InodeId::ROOT, name("target")));
        run(volume.fs.rename(&CONTEXT, from, to, RenameMode::Replace)).unwrap();
        assert_eq!(volume.lookup("target").unwrap().attributes.ino, new);
        if number == 1 {
            assert_eq!(volume.read(old, old_file, 0, 4), pattern(4, 1));
            volume.close(old, old_file);
        }
        // One who has looked it up before opens what he found, as often as he will.
        for _ in 0..2 {
            let late = run(volume.fs.open(&CONTEXT, old, RW)).unwrap();
            assert_eq!(volume.read(old, late, 0, 4), pattern(4, 1));
            assert_eq!(volume.stat(old).nlink, 0);
            volume.close(old, late);
        }
        assert!(volume.fs.forget(old, 1));
        run(volume.fs.forgotten(old));
        assert!(!volume.fs.forget(old, 1), "it is done once");
        assert!(matches!(run(volume.fs.open(&CONTEXT, old, RW)), Err(FsError::Stale)));
        volume.fs.collect().unwrap();
        assert_eq!(volume.objects_in_use(), 0);
        volume.unlink("target");
    }
}

#[test]
fn a_file_that_is_unlinked_after_an_exchange_opens_until_it_is_forgotten() {
    let volume = World::new().mount();
    let make = |called: &str| {
        let (ino, file) = volume.create(called);
        volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
        volume.close(ino, file);
        ino
    };
    let (from, to) = ((InodeId::ROOT, name("new")), (InodeId::ROOT, name("file")));
    let exchange = || run(volume.fs.rename(&CONTEXT, from, to, RenameMode::Exchange)).unwrap();
    let ask = XattrName::new(b"cofs.status").unwrap();
    let held = || {
        let status = run(volume.fs.getxattr(&CONTEXT, InodeId::ROOT, ask)).unwrap();
        serde_json::from_slice::<serde_json::Value>(&status).unwrap()["open_files"].as_u64().unwrap()
    };
    let (old, mut last) = (make("file"), make("new"));
    exchange();
    volume.unlink("new");
    for _ in 0..2 {
        // One who has looked it up before opens what he found, cuts it, and closes it.
        let late = run(volume.fs.open(&CONTEXT, old, RO)).unwrap();
        assert_eq!(volume.read(old, late, 0, 4), pattern(4, 1));
        volume.close(old, late);
    }
    volume.truncate(old, 3).unwrap();
    assert!(volume.fs.forget(old, 1));
    run(volume.fs.forgotten(old));
    assert!(matches!(run(volume.fs.open(&CONTEXT, old, RO)), Err(FsError::Stale)));

    // The same file changes names, and is replaced then, as often as anybody likes: it is held once.
    for _ in 0..3 {
        let next = make("new");
        exchange();
        exchange();
        run(volume.fs.rename(&CONTEXT, from, to, RenameMode::Replace)).unwrap();
        assert_eq!(held(), 2);
        volume.close(last, volume.open(last, RW));
        assert!(volume.fs.forget(last, 1));
        run(volume.fs.forgotten(last));
        assert_eq!(held(), 1);
        last = next;
    }
    // One that kept a name can be forgotten, too, and goes then as any other.
    assert!(volume.fs.forget(last, 1));
    run(volume.fs.forgotten(last));
    assert_eq!((held(), volume.stat(last).nlink), (0, 1));
    volume.unlink("file");
    volume.fs.collect().unwrap();
    assert_eq!(volume.objects_in_use(), 0);
}

#[test]
fn a_file_that_was_removed_under_the_name_by_which_it_is_cut_is_cut() {
    let volume = World::new().mount();
    for size in [100, INLINE_MAX * 2] {
        let (ino, file) = volume.create("a");
        volume.write(ino, file, 0, &pattern(size, 1));
        volume.close(ino, file);
        let long_ago = Some(SetTime::To(Timestamp::new(7, 5).unwrap()));
        let old = SetAttributes { permissions: Some(0o4755), mtime: long_ago, ..SetAttributes::default() };
        let before = volume.setattr(ino, old).unwrap();
        volume.unlink("a");
        let cut = SetAttributes { size_bytes: Some(10), kill_set_id: true, ..Default::default() };
        let told = volume.setattr(ino, cut).unwrap();
        assert_eq!((told.size_bytes, told.permissions, told.nlink), (10, 0o755, 0));
        assert!(told.mtime > before.mtime && told.ctime == told.mtime, "{told:?}");
        assert_eq!(volume.stat(ino), told);
        assert!(matches!(volume.truncate(ino, u64::MAX), Err(FsError::FileTooLarge)));
        let another = Credentials { uid: 7, gid: 7, groups: &[], authority: Authority::Unchecked };
        let refused = run(volume.fs.setattr(&Context { credentials: another, ..CONTEXT }, ino, None, &cut));
        assert!(matches!(refused, Err(FsError::Stale)), "{refused:?}");
        assert!(matches!(run(volume.fs.open(&CONTEXT, ino, RW)), Err(FsError::Stale)));
        volume.fs.forget(ino, 1);
        assert!(matches!(volume.truncate(ino, 10), Err(FsError::Stale)));
    }
}

/// `ln -sfn` is a rename over the link that others follow.
#[test]
fn a_link_replaced_by_rename_is_followed_until_it_is_forgotten() {
    let volume = World::new().mount();
    let link = |called, target: &[u8]| {
        let new = NewInode { kind: FileKind::Symlink, target, ..new_file(0o777) };
        run(volume.fs.make(&CONTEXT, InodeId::ROOT, name(called), new)).unwrap().attributes.ino
    };
    let old = link("link", b"release-1");
    let new = link("link.new", b"release-2");
    let (from, to) = ((InodeId::ROOT, name("link.new")), (InodeId::ROOT, name("link")));
    run(volume.fs.rename(&CONTEXT, from, to, RenameMode::Replace)).unwrap();
    assert_eq!(volume.lookup("link").unwrap().attributes.ino, new);
    // One who has looked it up before follows what he found.
    assert_eq!(run(volume.fs.readlink(old)).unwrap(), b"release-1"[..]);
    assert_eq!(volume.stat(old).nlink, 0);
    assert!(volume.fs.forget(old, 1));
    run(volume.fs.forgotten(old));
    assert!(matches!(run(volume.fs.readlink(old)), Err(FsError::Stale)));
    assert_eq!(run(volume.fs.readlink(new)).unwrap(), b"release-2"[..]);
}

/// Which files of a listing came without attributes; there must be room for all.
fn without_attributes(volume: &Volume, directory: InodeId) -> Vec<String> {
    let opened = run(volume.fs.opendir(&CONTEXT, directory, RO)).unwrap();
    let mut names = Vec::new();
    let mut sink = |entry: cofs_fs::DirEntry<'_>| {
        if entry.entry.is_none() && entry.kind == FileKind::Regular {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        }
        assert!(entry.entry.is_some() || entry.kind != FileKind::Directory || entry.name.starts_with(b"."));
        true
    };
    let of = |cookie| ListOf { cookie, with_attributes: true, entries_max: 1000 };
    run(volume.fs.readdir(&CONTEXT, directory, opened.handle, of(0), &mut sink)).unwrap();
    let mut none = |_: cofs_fs::DirEntry<'_>| panic!("behind the end");
    run(volume.fs.readdir(&CONTEXT, directory, opened.handle, of(i64::MAX as u64), &mut none)).unwrap();
    names
}

/// The caller of these tests becomes one who wants attributes.
fn look_at_what_is_listed(volume: &Volume) {
    let withheld = without_attributes(volume, InodeId::ROOT);
    volume.lookup(&withheld[0]).unwrap();
}

#[test]
fn a_listing_brings_attributes_to_those_who_look_at_them() {
    let volume = World::new().mount();
    for number in 0..20 {
        let (ino, file) = volume.create(&format!("f{number}"));
        volume.close(ino, file);
    }
    let directory = run(volume.fs.make(&CONTEXT, InodeId::ROOT, name("d"), new_directory())).unwrap();
    assert_eq!(without_attributes(&volume, InodeId::ROOT).len(), 1, "the question");
    assert_eq!(without_attributes(&volume, InodeId::ROOT).len(), 20, "nobody looked");
    // Who goes down the tree does not look at files.
    volume.lookup("d").unwrap();
    assert!(without_attributes(&volume, directory.attributes.ino).is_empty());
    assert_eq!(without_attributes(&volume, InodeId::ROOT).len(), 20);
    volume.lookup("f7").unwrap();
    for _ in 0..3 {
        assert!(without_attributes(&volume, InodeId::ROOT).is_empty());
    }
}

#[test]
fn a_listing_goes_on_where_it_stopped_and_shows_open_files_as_they_are() {
    let volume = World::new().mount();
    let mut expected = vec![".".to_owned(), "..".to_owned()];
    for number in 0..50 {
        let (ino, file) = volume.create(&format!("f{number}"));
        volume.close(ino, file);
        expected.push(format!("f{number}"));
    }
    let (ino, file) = volume.create("open");
    volume.write(ino, file, 0, &pattern(INLINE_MAX + 5, 1));
    expected.push("open".into());
    look_at_what_is_listed(&volume);
    let directory = run(volume.fs.opendir(&CONTEXT, InodeId::ROOT, RO)).unwrap();
    let (mut names, mut cookie, mut size_open) = (Vec::new(), 0, 0);
    loop {
        let mut room = 7;
        let before = cookie;
        let mut sink = |entry: cofs_fs::DirEntry<'_>| {
            if room == 0 {
                return false;
            }
            room -= 1;
            assert!(entry.cookie > cookie);
            cookie = entry.cookie;
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            if entry.name == b"open" {
                let attributes = entry.entry.unwrap();
                assert!(attributes.validity.attributes.is_zero());
                size_open = attributes.attributes.size_bytes;
            }
            true
        };
        let of = ListOf { cookie: before, with_attributes: true, entries_max: 8 };
        run(volume.fs.readdir(&CONTEXT, InodeId::ROOT, directory.handle, of, &mut sink)).unwrap();
        if cookie == before {
            break;
        }
    }
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(size_open, INLINE_MAX as u64 + 5);
}

#[test]
fn other_kinds_of_inodes_are_made_and_read() {
    let volume = World::new().mount();
    let symlink = NewInode { kind: FileKind::Symlink, target: b"to/there", ..new_file(0o777) };
    let made = run(volume.fs.make(&CONTEXT, InodeId::ROOT, name("s"), symlink)).unwrap();
    assert_eq!(run(volume.fs.readlink(made.attributes.ino)).unwrap(), b"to/there"[..]);
    let fifo = NewInode { kind: FileKind::Fifo, ..new_file(0o600) };
    let made = run(volume.fs.make(&CONTEXT, InodeId::ROOT, name("p"), fifo)).unwrap();
    assert!(matches!(
        run(volume.fs.open(&CONTEXT, made.attributes.ino, RO)),
        Err(FsError::InvalidArgument(_))
    ));
    assert_eq!(run(volume.fs.lookup_parent(InodeId::ROOT)).unwrap().attributes.ino, InodeId::ROOT);
    assert_eq!(run(volume.fs.lookup_self(made.attributes.ino)).unwrap().attributes.kind, FileKind::Fifo);
}

#[test]
fn the_virtual_attributes_speak_json_and_are_not_listed() {
    let volume = World::new().mount();
    volume.fs.set_report("io_uring, 2 workers".into());
    let (ino, file) = volume.create("a");
    volume.write(ino, file, 0, &pattern(INLINE_MAX * 2, 1));
    let ask = |ino, text: &str| {
        let name = XattrName::new(text.as_bytes()).unwrap();
        run(volume.fs.getxattr(&CONTEXT, ino, name))
            .map(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).unwrap())
    };
    let info = ask(ino, "cofs.info").unwrap();
    assert_eq!(info["layout"], "object");
    assert_eq!(info["size_bytes"], INLINE_MAX * 2);
    assert_eq!(info["open"]["writers"], 1);
    assert!(std::path::Path::new(info["object_path"].as_str().unwrap()).exists());
    let status = ask(InodeId::ROOT, "cofs.status").unwrap();
    assert_eq!(status["mount"], "io_uring, 2 workers");
    assert_eq!(status["open_files"], 1);
    assert!(matches!(ask(ino, "cofs.status"), Err(FsError::NoAttribute)));
    assert!(matches!(ask(ino, "cofs.nonsense"), Err(FsError::NoAttribute)));
    assert!(run(volume.fs.listxattr(&CONTEXT, ino)).unwrap().is_empty());
    volume.close(ino, file);

    volume.unlink("a");
    let gc = XattrName::new(b"cofs.gc").unwrap();
    let set = |ctx: &cofs_fs::Context<'_>| {
        run(volume.fs.setxattr(ctx, InodeId::ROOT, gc, b"1", XattrMode::Set, false))
    };
    let stranger = cofs_types::Credentials { uid: 1000, ..CONTEXT.credentials };
    let refused = set(&cofs_fs::Context { credentials: stranger, pid: 1 });
    assert!(matches!(refused, Err(FsError::NotPermitted)));
    set(&CONTEXT).unwrap();
    assert_eq!(volume.objects_in_use(), 0);
}

/// The last close comes between the commit of the name and the word of it: it finds none, and does not settle.
#[test]
fn a_file_that_gets_its_name_while_it_is_closed_has_its_size() {
    let volume = World::new().mount();
    let data = pattern(INLINE_MAX * 2, 1);
    let (entry, opened) = run(volume.fs.tmpfile(&CONTEXT, InodeId::ROOT, new_file(0o600), RW)).unwrap();
    let ino = entry.attributes.ino;
    volume.write(ino, opened, 0, &data);
    run(volume.fs.metadata().link(&CONTEXT.credentials, ino, InodeId::ROOT, name("a"))).unwrap();
    volume.close(ino, opened);
    assert!(volume.writing(ino), "nothing was at stake");
    run(volume.fs.link(&CONTEXT, ino, InodeId::ROOT, name("b"))).unwrap();
    assert!(!volume.writing(ino));
    assert_eq!(volume.lookup("a").unwrap().attributes.size_bytes, data.len() as u64);
}
