//! Inline data and layouts.

use cofs_engine::Engine as _;
use cofs_types::{FsError, Kills, Layout, SetAttributes};
use proptest::prelude::*;

use super::*;
use crate::{
    Leave, Settled, Unsynced,
    schema::{Key, ranges},
};

impl World {
    /// The chunks of `ino` that have a record.
    fn chunks(&self, ino: InodeId) -> Vec<u32> {
        let (all, mut chunks) = (ranges::inlines(), Vec::new());
        let mut visit = |key: &[u8], _: &[u8]| {
            if let Ok(Key::Inline { ino: owner, chunk }) = Key::parse(key)
                && owner == ino
            {
                chunks.push(chunk);
            }
            std::ops::ControlFlow::Continue(())
        };
        self.engine.scan(&all.start, &all.end, &mut visit).unwrap();
        chunks
    }

    fn read(&self, ino: InodeId, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xAA; len];
        let (n, node) = self.ns.inline_read(ino, offset, &mut bytes).unwrap();
        assert_eq!(node, self.ns.node(ino).unwrap());
        bytes.truncate(n);
        bytes
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write(u64, usize, u8),
    Zero(u64, u64, Option<u64>),
    Resize(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let max = u64::from(INLINE_MAX);
    let start = prop_oneof![Just(0), 0..max];
    prop_oneof![
        (0..max, 0usize..9000, 1u8..).prop_map(|(at, len, byte)| Op::Write(at, len, byte)),
        (start, 0..max, proptest::option::of(0..=max)).prop_map(|(at, len, size)| Op::Zero(at, len, size)),
        (0..=max).prop_map(Op::Resize),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn inline_bytes_are_those_of_a_plain_file(ops in proptest::collection::vec(op(), 1..20)) {
        let w = World::new();
        let f = w.file(ROOT, "f");
        let mut model: Vec<u8> = Vec::new();
        for op in ops {
            let before = w.chunks(f);
            match op {
                Op::Write(at, len, byte) => {
                    let data = vec![byte; len];
                    let end = at as usize + len;
                    let done = w.ns.inline_write(super::at(9), f, at, &data, Kills::Capabilities);
                    if end > INLINE_MAX as usize && len > 0 {
                        fails(done, FsError::FileTooLarge);
                    } else if len > 0 {
                        model.resize(model.len().max(end), 0);
                        model[at as usize..end].copy_from_slice(&data);
                    }
                }
                Op::Zero(at, len, size) => {
                    w.ns.inline_zero(super::at(9), f, at, len, size).unwrap();
                    let end = (at + len).min(model.len() as u64);
                    model[at.min(end) as usize..end as usize].fill(0);
                    model.resize(model.len().max(size.unwrap_or(0) as usize), 0);
                }
                Op::Resize(size) => {
                    w.set(f, SetAttributes { size_bytes: Some(size), ..Default::default() });
                    model.resize(size as usize, 0);
                }
            }
            let after = w.chunks(f);
            let first_went = before.contains(&0) && !after.contains(&0);
            prop_assert!(!first_went || after.is_empty(), "as the engine is told: {before:?} {after:?}");
            let a = w.stat(f);
            prop_assert_eq!((a.size_bytes, a.blocks_512), (model.len() as u64, (model.len() as u64).div_ceil(512)));
            prop_assert_eq!(w.read(f, 0, 70_000), model.clone());
            let middle = model.len() / 3;
            prop_assert_eq!(w.read(f, middle as u64, 5000), &model[middle..model.len().min(middle + 5000)]);
            w.audit();
        }
        w.ns.unlink(&C, super::at(9), ROOT, name("f")).unwrap();
        w.audit();
    }
}

#[test]
fn a_file_goes_to_an_object_and_comes_back() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    w.ns.inline_write(at(9), f, 0, &[3; 5000], Kills::Capabilities).unwrap();
    fails(w.ns.begin_writing(f), FsError::InvalidArgument(""));
    let node = w.ns.outgrow(at(10), f, object(1)).unwrap();
    assert_eq!(
        (node.layout, node.writing, node.attributes.size_bytes),
        (Layout::Object(object(1)), true, 5000)
    );
    assert_eq!(node.attributes.mtime, at(9));
    fails(w.ns.inline_read(f, 0, &mut [0; 9]), FsError::InvalidArgument("not inline"));
    fails(w.ns.inline_write(at(9), f, 0, b"x", Kills::Capabilities), FsError::InvalidArgument("not inline"));
    let cut = SetAttributes { size_bytes: Some(0), ..Default::default() };
    fails(w.ns.setattr(&C, at(9), f, &cut), FsError::InvalidArgument(""));
    w.audit();
    let settled = Settled { size_bytes: 70_000, blocks_512: 144, mtime: Some(at(20)), ..Default::default() };
    let node = w.ns.settle(f, &settled, Leave::Synced).unwrap();
    assert_eq!((node.attributes.size_bytes, node.attributes.blocks_512, node.writing), (70_000, 144, false));
    assert_eq!((node.attributes.mtime, node.attributes.ctime), (at(20), at(9)));
    let commits = w.engine.unsynced_commits();
    w.ns.settle(f, &settled, Leave::Synced).unwrap();
    assert_eq!(w.engine.unsynced_commits(), commits, "nothing differs, nothing is committed");
    w.ns.begin_writing(f).unwrap();
    assert_eq!(w.ns.writing_set(None, 9).unwrap(), [f]);
    w.audit();
    let commits = w.engine.unsynced_commits();
    w.ns.begin_writing(f).unwrap();
    assert_eq!(w.engine.unsynced_commits(), commits);
    let node = w.ns.inlay(at(30), f, &[4; 4097], Some((at(28), at(29)))).unwrap();
    assert_eq!((node.layout, node.writing), (Layout::Inline, false));
    assert_eq!((node.attributes.mtime, node.attributes.ctime), (at(28), at(29)));
    assert_eq!(w.read(f, 0, 9999), [4; 4097]);
    assert_eq!(w.ns.reclaim_list(9).unwrap(), [object(1)]);
    fails(w.ns.inlay(at(30), f, &[], None), FsError::InvalidArgument(""));
    w.audit();
}

#[test]
fn a_closed_file_is_marked_until_its_object_is_synced() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    w.ns.outgrow(at(10), f, object(1)).unwrap();
    let [early, late] = [3, 4].map(|second| Unsynced { second, run: 7 });
    let settled = Settled { size_bytes: 70_000, blocks_512: 144, ..Default::default() };
    assert!(!w.ns.settle(f, &settled, Leave::Closed(early)).unwrap().writing);
    assert_eq!(
        (w.ns.writing_set(None, 9).unwrap(), w.ns.unsynced_set(None, 9).unwrap()),
        (vec![], vec![(f, early)])
    );
    w.audit();
    // It is written again: its old mark is not that of its second close.
    w.ns.begin_writing(f).unwrap();
    assert_eq!((w.ns.writing_set(None, 9).unwrap(), w.ns.unsynced_set(None, 9).unwrap()), (vec![f], vec![]));
    w.ns.synced(&[(f, early)]).unwrap();
    assert_eq!(w.ns.writing_set(None, 9).unwrap(), [f]);
    w.ns.settle(f, &settled, Leave::Closed(late)).unwrap();
    w.ns.synced(&[(f, early)]).unwrap();
    assert_eq!(w.ns.unsynced_set(None, 9).unwrap(), [(f, late)]);
    w.ns.synced(&[(f, late)]).unwrap();
    assert_eq!(w.ns.unsynced_set(None, 9).unwrap(), []);
    w.audit();
    // The mark goes with the file, and with its object.
    let marked = |f, number| {
        w.ns.outgrow(at(10), f, object(number)).unwrap();
        w.ns.settle(f, &settled, Leave::Closed(late)).unwrap();
        assert_eq!(w.ns.unsynced_set(None, 9).unwrap(), [(f, late)]);
    };
    let g = w.file(ROOT, "g");
    marked(g, 2);
    w.ns.settle(g, &settled, Leave::Synced).unwrap();
    assert_eq!(w.ns.unsynced_set(None, 9).unwrap(), []);
    let h = w.file(ROOT, "h");
    marked(h, 3);
    w.ns.inlay(at(30), h, b"small", None).unwrap();
    assert_eq!(w.ns.unsynced_set(None, 9).unwrap(), []);
    marked(h, 4);
    w.ns.unlink(&C, at(9), ROOT, name("h")).unwrap();
    w.ns.synced(&[(h, late)]).unwrap();
    assert_eq!(w.ns.unsynced_set(None, 9).unwrap(), []);
    w.audit();
}

#[test]
fn a_write_by_a_stranger_takes_set_id_bits() {
    let w = World::new();
    let f = w.file(ROOT, "f");
    w.set(f, SetAttributes { permissions: Some(0o6755), ..Default::default() });
    assert_eq!(
        w.ns.inline_write(at(9), f, 0, b"x", Kills::Capabilities).unwrap().attributes.permissions,
        0o6755
    );
    assert_eq!(w.ns.inline_write(at(9), f, 0, b"x", Kills::SetIdToo).unwrap().attributes.permissions, 0o755);
}

#[test]
fn a_create_and_an_unlink_are_one_commit_each() {
    let w = World::new();
    w.file(ROOT, "first");
    let before = w.engine.unsynced_commits();
    w.file(ROOT, "second");
    assert_eq!(w.engine.unsynced_commits(), before + 1);
    w.ns.unlink(&C, at(9), ROOT, name("second")).unwrap();
    assert_eq!(w.engine.unsynced_commits(), before + 2);
}
