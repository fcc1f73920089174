//! Loading a dump into a volume that has lost its metadata: refused before anything is changed, or begun anew.

mod common;

use std::{fs, os::unix::fs::symlink, path::Path};

use common::{cofs, contents, format, path_str, refused, run, scratch};

/// A volume that has lost its metadata, and its dump.
fn lost(root: &tempfile::TempDir) -> (String, String) {
    let (store, dump) = (format(root), path_str(root, "dump"));
    run(&["dump", &store, "-o", &dump]);
    fs::remove_dir_all(format!("{store}/meta")).unwrap();
    (store, dump)
}

#[test]
fn a_load_that_was_killed_is_told_and_begun_anew() {
    for failpoint in ["cofs.load.claimed", "cofs.load.filled"] {
        let root = scratch();
        let (store, dump) = lost(&root);
        let mount = path_str(&root, "mount");
        fs::create_dir(&mount).unwrap();
        let killed = cofs(&["load", &store, &dump]).env("COFS_FAILPOINT", failpoint).output().unwrap();
        assert_eq!(killed.status.code(), None, "{failpoint} was not reached");
        let words = ["/meta are only half loaded", &format!("cofs load {store} FILE")];
        refused(root.path(), &["mount", &store, &mount], 1, &words);
        refused(root.path(), &["mount", "-o", "ro", &store, &mount], 1, &words);
        refused(root.path(), &["status", &store], 1, &words);
        refused(root.path(), &["fsck", &store], 8, &words);
        refused(root.path(), &["gc", &store], 1, &words);
        run(&["load", &store, &dump]);
        run(&["fsck", &store]);
        refused(root.path(), &["load", &store, &dump], 1, &["already a volume"]);
    }
}

#[test]
fn a_load_that_fails_is_no_half_load() {
    let root = scratch();
    let (store, dump) = lost(&root);
    fs::write(format!("{dump}.cut"), &fs::read(&dump).unwrap()[..20]).unwrap();
    refused(root.path(), &["load", &store, &format!("{dump}.cut")], 1, &["a whole file"]);
    run(&["load", &store, &dump]);
}

#[test]
fn a_pool_that_is_away_is_told_before_anything_is_loaded() {
    let root = scratch();
    let (store, dump) = lost(&root);
    let (pool, away) = (format!("{store}/pool"), path_str(&root, "away"));
    fs::rename(&pool, &away).unwrap();
    let words = [&pool, "not there", "cofs config STORE pool.default.directory=DIR"];
    refused(root.path(), &["load", &store, &dump], 1, &words);
    fs::rename(&away, &pool).unwrap();
    // Ones that are there, and cannot be used.
    let mark = format!("{pool}/cofs-pool.toml");
    let sound = fs::read_to_string(&mark).unwrap();
    fs::write(&mark, sound.replace("version = 1", "version = 9")).unwrap();
    refused(root.path(), &["load", &store, &dump], 1, &[&pool, "pool format 9", "use a newer cofs"]);
    fs::write(&mark, sound).unwrap();
    let reservations = format!("{pool}/reservations");
    fs::rename(&reservations, &away).unwrap();
    refused(root.path(), &["load", &store, &dump], 1, &[&reservations, "restore it"]);
    fs::rename(&away, &reservations).unwrap();
    run(&["load", &store, &dump]);
    run(&["fsck", &store]);
}

#[test]
fn a_link_to_nowhere_in_place_of_the_metadata_is_told() {
    let root = scratch();
    let (store, dump) = lost(&root);
    symlink(path_str(&root, "nowhere"), format!("{store}/meta")).unwrap();
    let words = ["/meta is a link to", "which does not exist; make the directory"];
    refused(root.path(), &["load", &store, &dump], 1, &words);
    fs::create_dir(path_str(&root, "nowhere")).unwrap();
    run(&["load", &store, &dump]);
    run(&["fsck", &store]);
}

#[test]
fn what_others_keep_in_place_of_the_metadata_stays() {
    let root = scratch();
    let (store, dump) = lost(&root);
    fs::create_dir(format!("{store}/meta")).unwrap();
    fs::write(format!("{store}/meta/precious"), "data").unwrap();
    let before = contents(Path::new(&store));
    refused(root.path(), &["load", &store, &dump], 1, &["is not empty: it holds precious"]);
    assert!(contents(Path::new(&store)) == before);
}
