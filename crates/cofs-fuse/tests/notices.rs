//! What the kernel is told unasked, on real mounts over both transports: that it does what it was told.

mod common;

use std::{
    fs::{self, File},
    io::Read,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;
use cofs_face::Recall;
use cofs_types::{FileKind, InodeId, Name};
use common::{Mounted, eventually, on_each};
use rustix::fs::inotify;

fn recall(on: &Mounted) -> Arc<dyn Recall> {
    on.fs.abilities().recall.unwrap()
}

fn number(file: &File) -> InodeId {
    InodeId::new(file.metadata().unwrap().ino()).unwrap()
}

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Behind the kernel's back.
fn removed_elsewhere(on: &Mounted, text: &str) {
    on.fs.node(InodeId::ROOT).unwrap().lock().directory().unwrap().remove(name(text)).unwrap();
}

/// By the kernel's own memory: it says " (deleted)" of what it has dropped.
fn path_of(file: &File) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

#[test]
fn an_expired_name_is_asked_for_again_and_stays_where_it_is() {
    on_each(|on| {
        let file = File::create(on.path("f")).unwrap();
        let node = on.fs.node(number(&file)).unwrap();
        let looked_up = || node.lock().lookups;
        let before = looked_up();
        fs::metadata(on.path("f")).unwrap();
        assert_eq!(looked_up(), before, "known for ever");
        recall(on).expire(InodeId::ROOT, name("f"));
        eventually("it is looked up again", || {
            fs::metadata(on.path("f")).unwrap();
            looked_up() > before
        });
        assert_eq!(path_of(&file), on.path("f"));
        // What would have been dropped by the deeper word.
        recall(on).entry(InodeId::ROOT, name("f"));
        eventually("the kernel drops it", || path_of(&file) != on.path("f"));
    });
}

#[test]
fn an_expired_name_that_leads_elsewhere_now_is_followed_there() {
    on_each(|on| {
        let (old, new) = (File::create(on.path("f")).unwrap(), File::create(on.path("g")).unwrap());
        removed_elsewhere(on, "f");
        let root = on.fs.node(InodeId::ROOT).unwrap();
        root.lock().directory().unwrap().insert(name("f"), number(&new), FileKind::Regular).unwrap();
        let seen = || fs::metadata(on.path("f")).unwrap().ino();
        assert_eq!(seen(), number(&old).get(), "known for ever");
        recall(on).expire(InodeId::ROOT, name("f"));
        eventually("the new file shows", || seen() == number(&new).get());
    });
}

#[test]
fn a_removed_name_is_gone_and_who_watches_the_file_hears_of_it() {
    on_each(|on| {
        let ino = number(&File::create(on.path("f")).unwrap());
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, on.path("f"), inotify::WatchFlags::DELETE_SELF).unwrap();
        removed_elsewhere(on, "f");
        assert!(on.path("f").exists(), "known for ever");
        recall(on).removed(InodeId::ROOT, name("f"), ino);
        eventually("the name is gone", || !on.path("f").exists());
        let mut space = [std::mem::MaybeUninit::uninit(); 512];
        let mut events = inotify::Reader::new(&watch, &mut space);
        let event = events.next().expect("an event is there at once").events();
        assert!(event.contains(inotify::ReadFlags::DELETE_SELF), "{event:?}");
    });
}

#[test]
fn an_open_file_whose_name_was_removed_has_no_link_and_lives_on() {
    on_each(|on| {
        fs::write(on.path("f"), "still").unwrap();
        let mut file = File::open(on.path("f")).unwrap();
        removed_elsewhere(on, "f");
        recall(on).removed(InodeId::ROOT, name("f"), number(&file));
        eventually("the name is gone", || !on.path("f").exists());
        assert_eq!(file.metadata().unwrap().nlink(), 0, "the kernel knows without asking");
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "still");
    });
}

#[test]
fn a_name_that_another_file_has_now_is_not_removed() {
    on_each(|on| {
        let (one, other) = (File::create(on.path("f")).unwrap(), File::create(on.path("g")).unwrap());
        recall(on).removed(InodeId::ROOT, name("f"), number(&other));
        // Told after it, by the same thread.
        recall(on).attributes(number(&one));
        on.fs.node(number(&one)).unwrap().lock().attributes.uid = 7;
        eventually("what was said later has come", || {
            recall(on).attributes(number(&one));
            fs::metadata(on.path("f")).is_ok_and(|told| told.uid() == 7)
        });
        assert_eq!(fs::metadata(on.path("f")).unwrap().ino(), number(&one).get());
    });
}

#[test]
fn stored_bytes_are_read_without_asking() {
    on_each(|on| {
        fs::write(on.path("f"), vec![b'a'; 10_000]).unwrap();
        let file = File::open(on.path("f")).unwrap();
        // Nothing of it is cached from here on.
        recall(on).data(number(&file));
        let stored = Bytes::from(vec![b'S'; 8192]);
        let read = || fs::read(on.path("f")).unwrap();
        eventually("the stored bytes show", || {
            recall(on).store(number(&file), 0, stored.clone());
            read()[..8192] == stored[..]
        });
        assert_eq!(read()[8192..], vec![b'a'; 10_000 - 8192], "the rest was asked for");
        let node = on.fs.node(number(&file)).unwrap();
        assert_eq!(
            node.lock().bytes().unwrap()[..],
            vec![b'a'; 10_000],
            "the file system has been told nothing"
        );
        recall(on).data(number(&file));
        eventually("taken back", || read() == vec![b'a'; 10_000]);
    });
}
