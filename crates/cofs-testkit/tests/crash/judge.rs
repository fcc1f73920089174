//! What became of the operation that was in flight when the daemon ended.

use std::collections::BTreeMap;

use cofs_testkit::kernel::first_request_end;

use crate::{
    disk::{Seen, compare},
    world::{Op, World},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    NothingInFlight,
    NotDone,
    Done,
    InPart,
}

/// What became of the operation that was in flight, and the world that is left: with it or without it. Of bytes a part may have arrived:
/// in an object any, in an inline file that which the first of the kernel's two requests holds.
pub fn judge(world: &World, op: &Op, seen: &BTreeMap<String, Seen>) -> Result<(Outcome, World), String> {
    let (before, after) = (world.after_crash([]), world.after_crash([op]));
    let (not_done, done) = (compare(&before, seen), compare(&after, seen));
    if not_done.is_ok() {
        return Ok((Outcome::NotDone, before));
    }
    if done.is_ok() {
        return Ok((Outcome::Done, after));
    }
    match in_part(&before, op, &after, seen).filter(|world| compare(world, seen).is_ok()) {
        Some(world) => {
            println!("in part: {op:?}");
            Ok((Outcome::InPart, world))
        }
        None => Err(format!("with {op:?} in flight: not done: {not_done:?}; done: {done:?}")),
    }
}

/// The world with so much of a change of bytes as has arrived, if that may be.
fn in_part(before: &World, op: &Op, after: &World, seen: &BTreeMap<String, Seen>) -> Option<World> {
    let id = World::touches(op)?;
    let Seen::File { file, inline, .. } = seen.get(before.name(id)?)? else { return None };
    if *inline {
        return Some(before.after_crash([&first_request(op)?]));
    }
    is_torn(&before.files[&id].data, &after.files[&id].data, &file.data).then(|| {
        let mut world = before.clone();
        world.files.insert(id, file.clone());
        world
    })
}

/// The first of the two requests that the kernel makes of some writes.
fn first_request(op: &Op) -> Option<Op> {
    let Op::Write { id, offset, seed, len } = *op else { return None };
    let end = first_request_end(offset, offset + len)?;
    Some(Op::Write { id, offset, seed, len: end - offset })
}

/// Whether bytes may be found so of which one change was in flight: each is the old or the new one.
fn is_torn(old: &[u8], new: &[u8], found: &[u8]) -> bool {
    let sizes = old.len().min(new.len())..=old.len().max(new.len());
    let byte = |of: &[u8], at| of.get(at).copied().unwrap_or(0);
    let either = |(at, found): (usize, &u8)| *found == byte(old, at) || *found == byte(new, at);
    sizes.contains(&found.len()) && found.iter().enumerate().all(either)
}

#[test]
fn a_write_is_cut_anywhere_in_an_object_and_only_between_requests_in_an_inline_file() {
    let (id, path) = (1, "file".to_owned());
    let mut world = World::default();
    world.apply(&Op::Create { path: path.clone(), id, mode: 0o644 });
    world.apply(&Op::Write { id, offset: 0, seed: 1, len: 5000 });
    let write = |offset, len| Op::Write { id, offset, seed: 2, len };
    let cut = |offset, arrived, inline| {
        let file = world.after_crash([&write(offset, arrived)]).files[&id].clone();
        let seen = BTreeMap::from([(path.clone(), Seen::File { file, links: 1, inline })]);
        judge(&world, &write(offset, 9000), &seen).ok().map(|(outcome, _)| outcome)
    };
    for inline in [true, false] {
        assert_eq!(
            [0, 9000].map(|arrived| cut(1000, arrived, inline)),
            [Some(Outcome::NotDone), Some(Outcome::Done)]
        );
        assert_eq!(cut(1000, 3096, inline), Some(Outcome::InPart), "up to the end of the first page");
        let elsewhere = (!inline).then_some(Outcome::InPart);
        assert_eq!([1, 3000, 3200, 7192].map(|arrived| cut(1000, arrived, inline)), [elsewhere; 4]);
        assert_eq!(cut(4096, 4096, inline), elsewhere, "a write that begins with a page is one request");
    }
}
