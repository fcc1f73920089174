//! A file system that gives up what is open below, as an NFS client does whose server has forgotten it.

mod common;

use cofs_placement::Placement;
use common::{ESTALE, POOL, World, errno, ino, scan};

/// Dead files tell so; whatever is opened from then on lives, of the pool's own files too.
fn dies_and_lives(world: &World, notice: impl Fn(&Placement)) {
    let placement = world.open();
    let before = placement.take(ino(1)).unwrap();
    before.file.write_all_at(b"x", 0).unwrap();
    before.file.sync(false).unwrap();
    placement.fill_now(POOL, 5).unwrap();
    let given_up = world.faulty().give_up_open_files().unwrap();
    assert!(given_up >= 3, "little was at stake: {given_up} files");

    notice(&placement);
    for number in 2..12 {
        let taken = placement.take(ino(number)).unwrap();
        // What was ready may be found dead by the first who writes it.
        let written = taken.file.write_all_at(b"y", 0).and_then(|()| taken.file.sync(false));
        if let Err(error) = written {
            assert_eq!((errno(&error), number), (Some(ESTALE), 2));
        }
    }
    assert_eq!(errno(&before.file.read_at(&mut [0], 0).unwrap_err()), Some(ESTALE));
    assert!(before.file.is_outlived());
    let anew = placement.open_object(before.id, true).unwrap();
    let mut bytes = [0; 2];
    assert_eq!(anew.read_at(&mut bytes, 0).unwrap(), 1);
    assert_eq!(bytes[0], b'x');
    assert!(!anew.is_outlived());
    placement.sync().unwrap();
    let owners = scan(&placement).0.into_values().filter_map(|seen| seen.owner);
    let mut owners: Vec<_> = owners.map(|owner| owner.get()).collect();
    owners.sort_unstable();
    assert_eq!(owners, (1..12).collect::<Vec<_>>());
    placement.close().unwrap();
}

#[test]
fn what_was_open_dies_and_what_is_opened_anew_lives() {
    dies_and_lives(&World::new(1), |_| {});
    dies_and_lives(&World::without_xattrs(), |_| {});
}

#[test]
fn who_finds_out_by_the_pools_own_files_tells_the_others() {
    dies_and_lives(&World::new(1), |placement| {
        // More than are ready, so that new ones are made.
        if let Err(error) = placement.fill_now(POOL, 3000) {
            assert_eq!(errno(&error), Some(ESTALE));
        }
    });
}
