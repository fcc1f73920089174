//! Volumes broken on purpose: each problem is found, and put right.

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use cofs_engine::{Batch, Change, Engine, MemoryEngine};
use cofs_types::{
    Credentials, FileKind, FsError, InodeId, Kills, Name, NewInode, ObjectId, Timestamp, XattrMode, XattrName,
};
use proptest::prelude::*;

use super::{Checker, Found, Ownership, Problem, Salvage, Was, repair};
use crate::{
    Leave, Namespace, OpenInodes, Settled, Unsynced, VolumeOptions, WithNodes,
    schema::{
        EntryRecord, HeaderPart, Inode, Key, MARK, NameHasher, Occupant, Shard, Writing, encode_chunk, key,
        ranges,
    },
};

const NOW: Timestamp = Timestamp { secs: 1000, nanos: 0 };
const OPTIONS: VolumeOptions = VolumeOptions { inline_bytes_max: 8192, hash_key: [3; 16] };
const ROOT: &Credentials<'static> = &Credentials::ROOT;

struct Closed;

impl OpenInodes for Closed {
    fn is_open(&self, _: InodeId) -> bool {
        false
    }
}

fn name(bytes: &str) -> &Name {
    Name::new(bytes.as_bytes()).unwrap()
}

/// `/file` (inline, linked twice), `/object`, `/dir`, `/dir/sub`, `/dir/sub/deep`, all of it found by name.
struct World {
    engine: Arc<dyn Engine>,
    file: InodeId,
    object: InodeId,
    dir: InodeId,
    sub: InodeId,
    deep: InodeId,
}

fn world() -> World {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    Namespace::format(&*engine, &OPTIONS, (0, 0, 0o755), NOW).unwrap();
    let ns = Namespace::open(Arc::clone(&engine), Arc::new(Closed)).unwrap();
    let make = |dir, text, kind| {
        let new = NewInode { kind, permissions: 0o755, umask: 0, rdev: 0, target: &[] };
        ns.create(ROOT, NOW, dir, name(text), &new).unwrap().attributes.ino
    };
    let file = make(InodeId::ROOT, "file", FileKind::Regular);
    let object = make(InodeId::ROOT, "object", FileKind::Regular);
    let dir = make(InodeId::ROOT, "dir", FileKind::Directory);
    let sub = make(dir, "sub", FileKind::Directory);
    let deep = make(sub, "deep", FileKind::Directory);
    ns.link(ROOT, NOW, file, dir, name("again")).unwrap();
    ns.inline_write(NOW, file, 0, &[7; 5000], Kills::Capabilities).unwrap();
    let large = XattrName::new(b"user.large").unwrap();
    ns.setxattr(ROOT, NOW, file, large, &[1; 3000], XattrMode::Set, false).unwrap();
    ns.outgrow(NOW, object, ObjectId::from_raw(77)).unwrap();
    ns.close(NOW).unwrap();
    World { engine, file, object, dir, sub, deep }
}

impl World {
    fn check(&self) -> Found {
        Checker::new(&*self.engine).check().unwrap()
    }

    fn change(&self, change: Change) {
        self.engine.commit(&Batch { changes: vec![change], ..Batch::default() }).unwrap();
    }

    fn delete(&self, key: &[u8]) {
        assert!(self.engine.get(key).unwrap().is_some(), "nothing at stake");
        self.change(Change::delete(key));
    }

    fn put(&self, key: &[u8], value: Vec<u8>) {
        self.change(Change::put(key, value));
    }

    fn edit(&self, ino: InodeId, edit: impl FnOnce(&mut Inode)) {
        let value = self.engine.get(&key::inode(ino)).unwrap().unwrap();
        let mut inode = Inode::decode(&value).unwrap();
        edit(&mut inode);
        self.put(&key::inode(ino), inode.encode());
    }

    fn slot(&self, text: &str) -> u64 {
        NameHasher::new(OPTIONS.hash_key).home(name(text))
    }

    /// Repairs until nothing is wrong, and says what was found at first.
    fn heal(&self) -> Vec<Problem> {
        let first = self.check().problems;
        for _ in 0..10 {
            let found = self.check();
            if found.problems.is_empty() {
                return first;
            }
            repair(&self.engine, &found.problems, NOW).unwrap();
        }
        panic!("still wrong after ten repairs: {:?}", self.check().problems);
    }

    fn open(&self) -> Namespace {
        Namespace::open(Arc::clone(&self.engine), Arc::new(Closed)).unwrap()
    }
}

#[test]
fn a_sound_volume_has_no_problems() {
    let world = world();
    let found = world.check();
    assert_eq!(found.problems, []);
    assert_eq!((found.summary.inodes, found.summary.directories, found.summary.entries), (6, 4, 6));
    assert_eq!((found.summary.writing, found.summary.large_xattrs, found.summary.inline_chunks), (1, 1, 2));
}

#[test]
fn the_root_is_its_own_parent_and_nothing_moves_for_it() {
    let damaged = world();
    for parent in [None, Some(damaged.sub), Some(damaged.file), InodeId::new(12345)] {
        damaged.edit(InodeId::ROOT, |root| root.parent = parent);
        let found = damaged.heal();
        assert_eq!(
            found,
            [Problem::WrongParent { ino: InodeId::ROOT, stored: parent, found: InodeId::ROOT }]
        );
        assert_eq!(all(&*damaged.engine).len(), all(&*world().engine).len());
    }
}

#[test]
fn of_a_directory_that_is_gone_no_slot_stays() {
    let world = world();
    let key = key::entry(InodeId::new(5_000).unwrap(), world.slot("deep"));
    // As if another name of the same hash had stood behind it.
    world.put(&key, EntryRecord { occupant: None, continues: true }.encode());
    world.heal();
    assert_eq!(world.engine.get(&key).unwrap(), None);
}

#[test]
fn a_directory_whose_inode_is_lost_keeps_its_name_and_what_is_in_it() {
    for unreadable in [true, false] {
        let world = world();
        for ino in [world.dir, world.sub, world.deep] {
            match unreadable {
                true => world.put(&key::inode(ino), b"\x01rot".to_vec()),
                false => world.delete(&key::inode(ino)),
            }
        }
        let lost = |ino, parent| Problem::Lost { ino, was: Was::Directory { parent: Some(parent) } };
        let mut expected =
            [lost(world.dir, InodeId::ROOT), lost(world.sub, world.dir), lost(world.deep, world.sub)];
        expected.sort_by_key(|problem| format!("{problem:?}"));
        let mut found = world.heal();
        found.sort_by_key(|problem| format!("{problem:?}"));
        assert_eq!(found, expected);
        let ns = world.open();
        let mut at = InodeId::ROOT;
        for (text, ino) in [("dir", world.dir), ("sub", world.sub), ("deep", world.deep)] {
            let child = ns.lookup(ROOT, at, name(text)).unwrap().attributes;
            assert_eq!((child.ino, child.permissions, child.uid), (ino, 0o700, 0));
            at = ino;
        }
        assert_eq!(ns.lookup(ROOT, world.dir, name("again")).unwrap().attributes.nlink, 2);
    }
}

#[test]
fn a_lost_directory_without_a_name_is_found_again_with_what_is_in_it() {
    let world = world();
    world.delete(&key::entry(InodeId::ROOT, world.slot("dir")));
    world.put(&key::inode(world.dir), b"\x01rot".to_vec());
    let found = world.heal();
    let was = Was::Directory { parent: None };
    let count = Problem::Subdirectories { dir: InodeId::ROOT, stored: 1, found: 0 };
    let expected = [Problem::Lost { ino: world.dir, was }, count, Problem::Unreachable { ino: world.dir }];
    assert_eq!(found, expected);
    let ns = world.open();
    let refuge = ns.lookup(ROOT, InodeId::ROOT, name("lost+found")).unwrap().attributes.ino;
    let dir = ns.lookup(ROOT, refuge, name(&format!("#{}", world.dir))).unwrap().attributes.ino;
    assert_eq!(ns.lookup(ROOT, dir, name("sub")).unwrap().attributes.ino, world.sub);
}

#[test]
fn where_lost_and_found_is_no_directory_another_is_made() {
    let world = world();
    let ns = world.open();
    let new = NewInode { kind: FileKind::Regular, permissions: 0o600, umask: 0, rdev: 0, target: &[] };
    for taken in ["lost+found", "lost+found.1"] {
        ns.create(ROOT, NOW, InodeId::ROOT, name(taken), &new).unwrap();
    }
    ns.close(NOW).unwrap();
    world.delete(&key::entry(InodeId::ROOT, world.slot("dir")));
    world.heal();
    let ns = world.open();
    let refuge = ns.lookup(ROOT, InodeId::ROOT, name("lost+found.2")).unwrap().attributes.ino;
    let dir = ns.lookup(ROOT, refuge, name(&format!("#{}", world.dir))).unwrap().attributes.ino;
    assert_eq!(dir, world.dir);
}

#[test]
fn a_file_whose_inode_is_lost_keeps_its_names_and_inline_data() {
    let world = world();
    world.put(&key::inode(world.file), b"\x01rot".to_vec());
    let found = world.heal();
    let was = Was::Inline { size_bytes: 5000 };
    assert_eq!(found[0], Problem::Lost { ino: world.file, was }, "{found:?}");
    let ns = world.open();
    for dir in [(InodeId::ROOT, "file"), (world.dir, "again")] {
        let file = ns.lookup(ROOT, dir.0, name(dir.1)).unwrap().attributes;
        assert_eq!((file.ino, file.nlink, file.size_bytes), (world.file, 2, 5000));
        assert_eq!((file.permissions, file.uid), (0o600, 0));
    }
    let mut bytes = [0; 5000];
    ns.inline_read(world.file, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 5000]);
}

#[test]
fn a_file_whose_inode_is_lost_gets_the_object_that_is_its_own() {
    let world = world();
    let salvage = |object, secs| Salvage {
        owner: world.object,
        object: ObjectId::from_raw(object),
        size_bytes: 12345,
        blocks_512: 32,
        mtime: Timestamp { secs, nanos: 0 },
    };
    let other = world.deep;
    world.put(&key::inode(world.object), b"\x01rot".to_vec());
    // 79 is another's, 80 is to be deleted, 76 is older.
    world.edit(other, |inode| {
        *inode = Inode { nlink: 1, ..Inode::new(FileKind::Regular, 0, (0, 0), NOW) };
        inode.layout = cofs_types::Layout::Object(ObjectId::from_raw(79));
    });
    world.put(&key::reclaim(ObjectId::from_raw(80)), MARK.to_vec());
    let find = |inos: &[InodeId]| {
        assert_eq!(inos, [world.object]);
        Ok(vec![salvage(77, 50), salvage(76, 40), salvage(79, 60), salvage(80, 70)])
    };
    let found = Checker::new(&*world.engine).finding_objects(&find).check().unwrap();
    let lost = Problem::Lost { ino: world.object, was: Was::Object(salvage(77, 50)) };
    assert_eq!(found.problems[0], lost, "{found:?}");
    repair(&world.engine, &found.problems, NOW).unwrap();
    world.heal();
    let node = world.open().lookup(ROOT, InodeId::ROOT, name("object")).unwrap();
    assert_eq!(node.layout, cofs_types::Layout::Object(ObjectId::from_raw(77)));
    assert_eq!((node.attributes.nlink, node.attributes.size_bytes), (1, 12345));
}

#[test]
fn a_dangling_entry_is_removed() {
    let world = world();
    world.delete(&key::inode(world.object));
    let found = world.heal();
    assert!(found.iter().any(|p| matches!(p, Problem::DanglingEntry { ino, .. } if *ino == world.object)));
    let gone = world.open().lookup(ROOT, InodeId::ROOT, name("object"));
    assert!(matches!(gone, Err(FsError::NotFound)), "{gone:?}");
}

#[test]
fn a_file_without_a_name_is_found_again_with_its_data() {
    let world = world();
    world.delete(&key::entry(InodeId::ROOT, world.slot("file")));
    world.delete(&key::entry(world.dir, world.slot("again")));
    assert_eq!(world.heal(), [Problem::Unreachable { ino: world.file }]);
    let ns = world.open();
    let refuge = ns.lookup(ROOT, InodeId::ROOT, name("lost+found")).unwrap().attributes.ino;
    let file = ns.lookup(ROOT, refuge, name(&format!("#{}", world.file))).unwrap().attributes;
    assert_eq!((file.ino, file.nlink, file.size_bytes), (world.file, 1, 5000));
    let mut bytes = [0; 5000];
    ns.inline_read(world.file, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 5000]);
}

#[test]
fn a_directory_without_a_name_keeps_what_is_in_it() {
    let world = world();
    world.delete(&key::entry(InodeId::ROOT, world.slot("dir")));
    let found = world.heal();
    assert!(found.contains(&Problem::Unreachable { ino: world.dir }), "{found:?}");
    let ns = world.open();
    assert_eq!(ns.lookup(ROOT, world.dir, name("sub")).unwrap().attributes.ino, world.sub);
    let refuge = ns.parent(world.dir).unwrap().attributes;
    assert_eq!(refuge.nlink, 3);
}

#[test]
fn wrong_counts_are_corrected() {
    let world = world();
    world.edit(world.file, |inode| inode.nlink = 9);
    world.edit(world.dir, |inode| inode.nlink = 5);
    let shard = Shard { subdirectories: 4, times: None };
    world.put(&key::shard(world.dir, 0), shard.encode());
    let mut found = world.heal();
    found.sort_by_key(|p| format!("{p:?}"));
    let expected = [
        Problem::LinkCount { ino: world.dir, stored: 5, found: 2 },
        Problem::LinkCount { ino: world.file, stored: 9, found: 2 },
        Problem::Subdirectories { dir: world.dir, stored: 4, found: 1 },
    ];
    let mut expected = expected.to_vec();
    expected.sort_by_key(|p| format!("{p:?}"));
    assert_eq!(found, expected);
}

#[test]
fn a_missing_shard_is_written_again() {
    let world = world();
    world.delete(&key::shard(world.dir, 0));
    assert_eq!(world.heal(), [Problem::Subdirectories { dir: world.dir, stored: 0, found: 1 }]);
}

#[test]
fn directories_that_lie_in_one_another_are_taken_out() {
    let world = world();
    // /dir/sub becomes /dir/sub/deep/sub.
    world.delete(&key::entry(world.dir, world.slot("sub")));
    world.edit(world.sub, |inode| inode.parent = Some(world.deep));
    let occupant = Occupant { name: name("sub"), ino: world.sub, kind: FileKind::Directory };
    let record = EntryRecord { occupant: Some(occupant), continues: false };
    world.put(&key::entry(world.deep, world.slot("sub")), record.encode());
    let found = world.heal();
    assert!(found.iter().any(|p| matches!(p, Problem::Cycle { .. })), "{found:?}");
    let ns = world.open();
    assert!(ns.lookup(ROOT, InodeId::ROOT, name("lost+found")).is_ok());
}

#[test]
fn a_second_name_of_a_directory_is_removed_and_a_moved_one_followed() {
    let world = world();
    let occupant = Occupant { name: name("twin"), ino: world.sub, kind: FileKind::Directory };
    let record = EntryRecord { occupant: Some(occupant), continues: false };
    world.put(&key::entry(InodeId::ROOT, world.slot("twin")), record.encode());
    let slot = world.slot("twin");
    assert_eq!(world.heal(), [Problem::ExtraDirectoryEntry { dir: InodeId::ROOT, slot, ino: world.sub }]);

    world.edit(world.sub, |inode| inode.parent = Some(InodeId::ROOT));
    let (stored, found) = (Some(InodeId::ROOT), world.dir);
    assert_eq!(world.heal(), [Problem::WrongParent { ino: world.sub, stored, found }]);
}

#[test]
fn an_entry_in_a_wrong_slot_is_moved_home() {
    let world = world();
    let occupant = Occupant { name: name("file"), ino: world.file, kind: FileKind::Regular };
    world.delete(&key::entry(InodeId::ROOT, world.slot("file")));
    let record = EntryRecord { occupant: Some(occupant), continues: false };
    world.put(&key::entry(InodeId::ROOT, 12345), record.encode());
    let found = world.heal();
    assert!(found.iter().any(|p| matches!(p, Problem::MisplacedEntry { slot: 12345, .. })), "{found:?}");
    assert_eq!(world.open().lookup(ROOT, InodeId::ROOT, name("file")).unwrap().attributes.nlink, 2);
}

#[test]
fn what_belongs_to_nobody_is_removed() {
    let world = world();
    let nobody = InodeId::new(5_000).unwrap();
    let large = XattrName::new(b"user.x").unwrap();
    let keys: [Vec<u8>; 8] = [
        key::inline(nobody, 0).to_vec(),
        key::inline(world.file, 2).to_vec(),
        key::inline(world.object, 0).to_vec(),
        key::xattr(nobody, large),
        key::xattr(world.dir, large),
        key::writing(nobody).to_vec(),
        key::unlinked(nobody).to_vec(),
        b"\0\0Zunknown".to_vec(),
    ];
    for key in &keys {
        world.put(key, encode_chunk(b""));
    }
    world.put(&key::shard(world.file, 0), Shard::default().encode());
    assert_eq!(world.heal().len(), keys.len() + 1);
    assert!(keys.iter().all(|key| world.engine.get(key).unwrap().is_none()));
}

#[test]
fn a_closed_file_may_be_marked_and_nobody_else() {
    let world = world();
    let closed = |second| Writing::Closed(Unsynced { second, run: 7 }).encode();
    let nobody = InodeId::new(5_000).unwrap();
    world.put(&key::writing(nobody), closed(1));
    world.put(&key::writing(world.object), closed(2));
    let found = world.heal();
    assert!(found.contains(&Problem::Writing { ino: nobody, marked: true }));
    // Its record says that it is being written.
    assert!(found.contains(&Problem::Writing { ino: world.object, marked: false }));
    assert_eq!(world.engine.get(&key::writing(world.object)).unwrap().unwrap(), MARK);
    world
        .open()
        .settle(world.object, &Settled::default(), Leave::Closed(Unsynced { second: 1, run: 1 }))
        .unwrap();
    assert!(world.heal().is_empty());
    assert_eq!(world.open().unsynced_set(None, 9).unwrap().len(), 1);
}

#[test]
fn inline_data_beyond_the_end_is_cut() {
    let world = world();
    world.put(&key::inline(world.file, 1), encode_chunk(&[9; 2000]));
    assert_eq!(world.heal(), [Problem::StrayInline { ino: world.file, chunk: 1 }]);
    let value = world.engine.get(&key::inline(world.file, 1)).unwrap().unwrap();
    assert_eq!(value, encode_chunk(&[9; 5000 - 4096]));
}

#[test]
fn the_sets_and_the_inodes_agree() {
    let world = world();
    world.delete(&key::writing(world.object));
    world.put(&key::writing(world.file), MARK.to_vec());
    world.put(&key::unlinked(world.file), MARK.to_vec());
    world.put(&key::reclaim(ObjectId::from_raw(77)), MARK.to_vec());
    let found = world.heal();
    assert!(found.contains(&Problem::Writing { ino: world.object, marked: false }));
    assert!(found.contains(&Problem::Writing { ino: world.file, marked: true }));
    assert!(found.contains(&Problem::StrayUnlinked { ino: world.file }));
    assert!(found.contains(&Problem::ReclaimInUse { object: ObjectId::from_raw(77), ino: world.object }));
    assert!(world.open().node(world.object).unwrap().writing);
}

#[test]
fn numbers_in_use_are_never_given_out_again() {
    let world = world();
    world.put(&key::header(HeaderPart::Inodes), crate::schema::encode_number(2));
    world.put(&key::header(HeaderPart::Counts), b"\x01?".to_vec());
    assert_eq!(world.heal().len(), 2);
    let last = [world.file, world.deep, world.sub].into_iter().max().unwrap();
    let ns = world.open();
    assert_eq!(ns.files(), 6);
    let new = NewInode { kind: FileKind::Regular, permissions: 0, umask: 0, rdev: 0, target: &[] };
    assert!(ns.create(ROOT, NOW, InodeId::ROOT, name("new"), &new).unwrap().attributes.ino > last);
}

#[test]
fn ends_of_the_pools_that_are_illegible_are_removed() {
    let world = world();
    world.put(&key::header(HeaderPart::PoolEnds), b"\x01?".to_vec());
    assert!(Namespace::open(Arc::clone(&world.engine), Arc::new(Closed)).is_err());
    assert_eq!(world.heal().len(), 1);
    assert_eq!(world.open().pool_ends(), []);
}

#[test]
fn what_a_newer_cofs_has_written_is_no_damage() {
    let root = key::inode(InodeId::ROOT).to_vec();
    let kinds = all(&*world().engine).into_iter().map(|(key, _)| key.to_vec());
    // Of each key, alone and in a volume without a root.
    for (key, without_root) in kinds.flat_map(|key| [(key.clone(), false), (key, true)]) {
        let world = world();
        if key == key::header(HeaderPart::Volume) || without_root && key == root {
            continue;
        }
        let mut value = world.engine.get(&key).unwrap().unwrap().to_vec();
        // The records in `W` have two versions.
        value[0] += 2;
        world.put(&key, value);
        if without_root {
            world.delete(&root);
        }
        world.put(b"\0\0Zunknown", encode_chunk(b""));
        let refused = Checker::for_repair(&*world.engine).check();
        assert!(
            matches!(&refused, Err(FsError::Engine(why)) if why.contains("newer cofs")),
            "{}: {refused:?}",
            key.escape_ascii()
        );
    }
}

#[test]
fn labels_that_the_header_knows_nothing_of_are_found() {
    let label = XattrName::new(b"security.selinux").unwrap();
    // Within the inode's record, and beside it.
    for len in [10, 3000] {
        let world = world();
        let before = world.engine.get(&key::header(HeaderPart::Unlabelled)).unwrap();
        assert!(before.is_some(), "nothing at stake");
        let ns = world.open();
        ns.setxattr(ROOT, NOW, world.file, label, &vec![1; len], XattrMode::Set, false).unwrap();
        ns.close(NOW).unwrap();
        assert_eq!(world.check().problems, []);
        let epoch = world.engine.get(&key::header(HeaderPart::Epoch)).unwrap().unwrap();
        world.put(&key::header(HeaderPart::Unlabelled), epoch.to_vec());
        assert_eq!(world.heal(), [Problem::Labelled { ino: world.file }]);
        assert_eq!(world.open().getxattr(ROOT, world.file, label).unwrap().len(), len);
    }
}

#[test]
fn objects_are_compared_in_both_directions() {
    let world = world();
    let checker = Checker::new(&*world.engine);
    let mut seen = Vec::new();
    checker
        .objects(&mut |ino, object, _| {
            seen.push((ino, object));
            Ok(())
        })
        .unwrap();
    let object = ObjectId::from_raw(77);
    assert_eq!(seen, [(world.object, object)]);
    let whose = |object, owner| checker.ownership(object, owner).unwrap();
    assert_eq!(whose(object, Some(world.object)), Ownership::Owned);
    assert_eq!(whose(object, Some(world.file)), Ownership::Orphan);
    assert_eq!(whose(ObjectId::from_raw(78), None), Ownership::Orphan);
    assert_eq!(whose(ObjectId::from_raw(78), InodeId::new(5_000)), Ownership::Lost);
    assert_eq!(whose(ObjectId::from_raw(78), InodeId::new(1 << 47)), Ownership::Orphan);
    world.put(&key::reclaim(ObjectId::from_raw(78)), MARK.to_vec());
    assert_eq!(whose(ObjectId::from_raw(78), None), Ownership::Reclaim);
}

fn all(engine: &dyn Engine) -> Vec<(Bytes, Bytes)> {
    let (mut out, range) = (Vec::new(), ranges::everything());
    let mut visit = |key: &[u8], value: &[u8]| {
        out.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
        ControlFlow::Continue(())
    };
    engine.scan(&range.start, &range.end, &mut visit).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is lost or damaged, the check ends, repairs end, and what is left is a sound volume. Only the
    /// header's description of the volume must be whole.
    #[test]
    fn any_damage_is_healed(damage in prop::collection::vec((any::<prop::sample::Index>(), 0..3u8, any::<u8>(), any::<u8>()), 1..6)) {
        let world = world();
        for (which, how, at, byte) in damage {
            let records = all(&*world.engine);
            let (key, value) = which.get(&records);
            if matches!(Key::parse(key), Ok(Key::Header(HeaderPart::Volume | HeaderPart::Epoch))) {
                continue;
            }
            let mut value = value.to_vec();
            match how {
                0 => world.delete(key),
                1 => {
                    let at = usize::from(at) % value.len().max(1);
                    if let Some(place) = value.get_mut(at) {
                        // Not what a newer cofs would have written.
                        *place = if at == 0 { 0 } else { byte };
                    }
                    world.put(key, value);
                }
                _ => {
                    value.truncate(usize::from(at) % (value.len() + 1));
                    world.put(key, value);
                }
            }
        }
        world.heal();
        let ns = world.open();
        ns.list(InodeId::ROOT, 0, WithNodes::All, usize::MAX, &mut |_| true).unwrap();
    }
}
