//! Making a directory a pool.

use std::{fs::File, io, sync::Arc};

use cofs_types::{FsError, FsResult};
use uuid::Uuid;

use crate::{
    PoolConfig,
    boot::{boot_id, run_id},
    identity::{self, Identity, absent_is_well},
    path,
    reservation::{self, ReservationFile},
    store::{At, BackingStore, OpenMode},
};

/// Makes the store's directory a pool: `objects/`, `reservations`, and last the identity, all durable.
pub fn format(store: &Arc<dyn BackingStore>, config: &PoolConfig, volume: Uuid) -> FsResult<()> {
    store.attach(&mut |_| Ok(())).map_err(|error| FsError::from_io("open the directory of a pool", error))?;
    refuse_what_is_used(&**store)?;
    lay_out(&**store).and_then(|()| Identity::new(config, volume).write(&**store)).map_err(|error| {
        // What cannot be removed the next format will.
        let _ = clear_left_overs(&**store);
        FsError::from_io("format a pool", error)
    })
}

/// Takes back [`format`], also one that was cut short. `NotEmpty`, and nothing is changed, where there are objects.
pub fn unformat(store: &Arc<dyn BackingStore>) -> FsResult<()> {
    let context = |error| FsError::from_io("take back a pool", error);
    store.attach(&mut |_| Ok(())).map_err(context)?;
    clear_left_overs(&**store)?;
    identity::remove(&**store).map_err(context)
}

/// `Exists` for what is a pool already (whosever), `NotEmpty` for what holds anything else.
fn refuse_what_is_used(store: &dyn BackingStore) -> FsResult<()> {
    let context = |error| FsError::from_io("look at the directory of a pool", error);
    let root = store.open(At::root("."), OpenMode::Directory).map_err(context)?;
    let (mut used, mut pool, mut left_over) = (false, false, false);
    store
        .list(&root, &mut |name, _| {
            pool |= name == identity::FILE.as_bytes();
            let begun = name == path::OBJECTS.as_bytes() || name == reservation::FILE.as_bytes();
            left_over |= begun;
            used |= !begun && !identity::harmless(name);
            Ok(())
        })
        .map_err(context)?;
    match (pool, used) {
        (true, _) => Err(FsError::Exists),
        (_, true) => Err(FsError::NotEmpty),
        _ if left_over => clear_left_overs(store),
        _ => Ok(()),
    }
}

/// Removes what a format that was cut short left, if it holds no object.
fn clear_left_overs(store: &dyn BackingStore) -> FsResult<()> {
    absent_is_well(store.remove_directory(At::root(path::OBJECTS))).map_err(|_| FsError::NotEmpty)?;
    [reservation::FILE, identity::FILE_NEW]
        .into_iter()
        .try_for_each(|name| absent_is_well(store.remove_file(At::root(name))))
        .map_err(|error| FsError::from_io("format a pool", error))
}

fn lay_out(store: &dyn BackingStore) -> io::Result<()> {
    store.make_directory(At::root(path::OBJECTS))?;
    ReservationFile::create(store, run_id(boot_id(), store.mount()))?;
    let root: File = store.open(At::root("."), OpenMode::Directory)?;
    root.sync_all()
}
