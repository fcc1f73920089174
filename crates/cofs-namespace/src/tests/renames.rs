//! rename, in all its forms.

use cofs_types::{FileKind, FsError, RenameMode::*};

use super::*;
use crate::{Fate, Renamed};

impl World {
    fn mv(
        &self,
        from: (InodeId, &str),
        to: (InodeId, &str),
        mode: cofs_types::RenameMode,
    ) -> FsResult<Renamed> {
        self.ns.rename(&C, self.now(), (from.0, name(from.1)), (to.0, name(to.1)), mode)
    }
}

#[test]
fn a_file_moves_and_replaces_a_file() {
    let w = World::new();
    let (d, a, b) = (w.dir(ROOT, "d"), w.file(ROOT, "a"), w.file(ROOT, "b"));
    assert_eq!(w.mv((ROOT, "a"), (d, "a"), Replace).unwrap().replaced, None);
    assert_eq!(w.find(d, "a").unwrap(), a);
    fails(w.find(ROOT, "a"), FsError::NotFound);
    let moved = w.stat(a);
    assert!(moved.ctime > moved.mtime && w.stat(d).mtime == moved.ctime && w.stat(ROOT).mtime == moved.ctime);
    fails(w.mv((d, "a"), (ROOT, "b"), NoReplace), FsError::Exists);
    let replaced = w.mv((d, "a"), (ROOT, "b"), Replace).unwrap().replaced.unwrap();
    assert_eq!((replaced.node.attributes.ino, replaced.fate), (b, Fate::Gone));
    assert_eq!(w.find(ROOT, "b").unwrap(), a);
    assert_eq!(w.names(d), Vec::<String>::new());
    fails(w.mv((ROOT, "nothing"), (ROOT, "b"), Replace), FsError::NotFound);
    w.audit();
}

#[test]
fn two_names_of_one_inode_are_left_alone() {
    let w = World::new();
    let a = w.file(ROOT, "a");
    w.ns.link(&C, at(9), a, ROOT, name("b")).unwrap();
    let before = w.stat(a);
    assert_eq!(w.mv((ROOT, "a"), (ROOT, "b"), Replace).unwrap().replaced, None);
    assert_eq!(w.mv((ROOT, "a"), (ROOT, "a"), Replace).unwrap().replaced, None);
    assert_eq!(w.mv((ROOT, "a"), (ROOT, "b"), Exchange).unwrap().replaced, None);
    fails(w.mv((ROOT, "a"), (ROOT, "b"), NoReplace), FsError::Exists);
    assert_eq!((w.names(ROOT), w.stat(a)), (vec!["a".into(), "b".into()], before));
    w.audit();
}

#[test]
fn kinds_must_agree() {
    let w = World::new();
    let d = w.dir(ROOT, "d");
    w.file(ROOT, "f");
    fails(w.mv((ROOT, "f"), (ROOT, "d"), Replace), FsError::IsDirectory);
    fails(w.mv((ROOT, "d"), (ROOT, "f"), Replace), FsError::NotDirectory);
    w.file(d, "inside");
    w.dir(ROOT, "e");
    fails(w.mv((ROOT, "e"), (ROOT, "d"), Replace), FsError::NotEmpty);
    w.ns.unlink(&C, at(9), d, name("inside")).unwrap();
    let replaced = w.mv((ROOT, "e"), (ROOT, "d"), Replace).unwrap().replaced.unwrap();
    assert_eq!((replaced.node.attributes.ino, replaced.node.attributes.nlink), (d, 0));
    assert_eq!(w.stat(ROOT).nlink, 3);
    w.audit();
}

#[test]
fn a_directory_takes_its_parent_with_it_and_never_goes_into_itself() {
    let w = World::new();
    let a = w.dir(ROOT, "a");
    let b = w.dir(a, "b");
    let c = w.dir(b, "c");
    fails(w.mv((ROOT, "a"), (c, "x"), Replace), FsError::InvalidArgument(""));
    fails(w.mv((ROOT, "a"), (a, "x"), Replace), FsError::InvalidArgument(""));
    fails(w.mv((ROOT, "a"), (b, "c"), Exchange), FsError::InvalidArgument(""));
    fails(w.mv((b, "c"), (ROOT, "a"), Exchange), FsError::InvalidArgument(""));
    fails(w.mv((b, "c"), (ROOT, "a"), Replace), FsError::NotEmpty);
    w.mv((b, "c"), (ROOT, "c"), Replace).unwrap();
    assert_eq!(w.ns.parent(c).unwrap().attributes.ino, ROOT);
    assert_eq!((w.stat(ROOT).nlink, w.stat(b).nlink), (4, 2));
    w.mv((ROOT, "a"), (c, "a"), Replace).unwrap();
    assert_eq!(w.ns.parent(a).unwrap().attributes.ino, c);
    w.audit();
}

#[test]
fn an_exchange_swaps_anything() {
    let w = World::new();
    let (a, b) = (w.dir(ROOT, "a"), w.dir(ROOT, "b"));
    let (f, d) = (w.file(a, "x"), w.dir(b, "y"));
    fails(w.mv((a, "x"), (b, "nothing"), Exchange), FsError::NotFound);
    w.mv((a, "x"), (b, "y"), Exchange).unwrap();
    assert_eq!((w.find(a, "x").unwrap(), w.find(b, "y").unwrap()), (d, f));
    assert_eq!((w.stat(a).nlink, w.stat(b).nlink), (3, 2));
    assert_eq!(w.ns.parent(d).unwrap().attributes.ino, a);
    assert_eq!(w.ns.lookup(&C, a, name("x")).unwrap().attributes.kind, FileKind::Directory);
    assert_eq!(w.stat(d).ctime, w.stat(f).ctime);
    w.audit();
    w.mv((ROOT, "a"), (ROOT, "b"), Exchange).unwrap();
    assert_eq!((w.find(ROOT, "a").unwrap(), w.stat(ROOT).nlink), (b, 4));
    w.audit();
}

#[test]
fn a_replaced_file_that_is_open_is_kept() {
    let w = World::new();
    let (_, b) = (w.file(ROOT, "a"), w.file(ROOT, "b"));
    w.open(b);
    let replaced = w.mv((ROOT, "a"), (ROOT, "b"), Replace).unwrap().replaced.unwrap();
    assert_eq!(replaced.fate, Fate::Kept);
    w.audit();
    w.close(b);
    fails(w.ns.node(b), FsError::Stale);
    w.audit();
}

#[test]
fn a_whiteout_takes_the_old_name() {
    let w = World::new();
    let (d, a, b) = (w.dir(ROOT, "d"), w.file(ROOT, "a"), w.file(ROOT, "b"));
    let keep = Whiteout { replace: false };
    let replace = Whiteout { replace: true };
    fails(w.mv((ROOT, "a"), (ROOT, "b"), keep), FsError::Exists);
    assert_eq!(w.mv((ROOT, "a"), (ROOT, "c"), keep).unwrap().replaced, None);
    assert_eq!(w.find(ROOT, "c").unwrap(), a);
    let left = w.stat(w.find(ROOT, "a").unwrap());
    let (kind, permissions) = (left.kind, left.permissions);
    assert_eq!((kind, permissions, left.rdev, left.nlink), (FileKind::CharDevice, 0, 0, 1));
    let replaced = w.mv((ROOT, "c"), (ROOT, "b"), replace).unwrap().replaced.unwrap();
    assert_eq!((replaced.node.attributes.ino, replaced.fate), (b, Fate::Gone));
    assert_eq!(w.mv((ROOT, "d"), (ROOT, "e"), replace).unwrap().replaced, None);
    assert_eq!((w.find(ROOT, "e").unwrap(), w.stat(ROOT).nlink), (d, 3));
    // One directory full of them: old and new names lie in slots beside each other.
    for n in 0..300 {
        let (old, new) = (format!("n{n}"), format!("n{}", n + 1));
        if n == 0 {
            w.file(d, &old);
        }
        w.mv((d, &old), (d, &new), keep).unwrap();
    }
    assert_eq!(w.names(d).len(), 301);
    w.audit();
}
