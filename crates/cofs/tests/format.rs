//! Bad input of `format`, and formats that ended early: refused or begun anew, and nothing left of what failed.

mod common;

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::symlink,
    },
    path::Path,
};

use common::{cofs, format, path_str, refused, run, scratch};

#[test]
fn format_refuses_what_is_not_empty_or_not_fit() {
    let root = scratch();
    let store = path_str(&root, "store");
    let used = path_str(&root, "used");
    let file = path_str(&root, "file");
    fs::create_dir(&used).unwrap();
    fs::write(root.path().join("used/precious"), "data").unwrap();
    fs::write(&file, "data").unwrap();

    refused(root.path(), &["format", &used], 1, &[&used, "not empty", "precious"]);
    refused(root.path(), &["format", &file], 1, &[&file, "not a directory"]);
    refused(root.path(), &["format", &path_str(&root, "no/such/place")], 1, &["no such file or directory"]);
    refused(root.path(), &["format", "/proc/store"], 1, &["/proc/store"]);
    refused(root.path(), &["format", &path_str(&root, &"n".repeat(256))], 1, &["too long", "a shorter one"]);
    refused(root.path(), &["format", &store, "--meta", &used], 1, &[&used, "not empty"]);
    refused(root.path(), &["format", &store, "--pool", &format!("a={used}")], 1, &[&used, "not empty"]);
    let no_directory = [&file, "is not a directory", "name a directory that is empty"];
    refused(root.path(), &["format", &store, "--pool", &format!("a={file}")], 1, &no_directory);
    refused(root.path(), &["format", &store, "--meta", &file], 1, &no_directory);
    let above = root.path().to_str().unwrap();
    refused(root.path(), &["format", &store, "--pool", &format!("a={above}")], 1, &["contains the store"]);
    let nested = [format!("a={above}/p"), format!("b={above}/p")];
    refused(
        root.path(),
        &["format", &store, "--pool", &nested[0], "--pool", &nested[1]],
        1,
        &["in one another"],
    );
    let twice = [format!("a={above}/p"), format!("a={above}/q")];
    refused(root.path(), &["format", &store, "--pool", &twice[0], "--pool", &twice[1]], 1, &["`a`", "twice"]);
    assert!(!Path::new(&store).exists(), "a refused format left its store behind");
}

#[test]
fn a_volume_is_never_formatted_again() {
    let root = scratch();
    let store = format(&root);
    refused(root.path(), &["format", &store], 1, &[&store, "already a volume", "cofs mount"]);
}

#[test]
fn a_half_written_store_is_named_so_and_formatted_when_asked_again() {
    let root = scratch();
    let store = format(&root);
    let config = Path::new(&store).join("cofs.toml");
    fs::rename(&config, Path::new(&store).join("formatting.toml")).unwrap();
    let mount = path_str(&root, "mount");
    fs::create_dir(&mount).unwrap();
    refused(root.path(), &["mount", &store, &mount], 1, &["half formatted", "cofs format"]);
    let output = cofs(&["format", &store]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(config.exists());
}

#[test]
fn a_format_that_was_killed_in_writing_its_plan_is_begun_anew() {
    let root = scratch();
    let store = path_str(&root, "store");
    fs::create_dir(&store).unwrap();
    fs::write(format!("{store}/formatting.new"), "format_ver").unwrap();
    refused(root.path(), &["config", &store], 1, &["cofs format"]);
    run(&["format", &store]);
    assert!(!Path::new(&store).join("formatting.new").exists());
    run(&["fsck", &store]);
}

#[test]
fn a_format_that_is_killed_anywhere_is_begun_anew() {
    for failpoint in ["cofs.format.planned", "cofs.format.pools", "cofs.format.made"] {
        let root = scratch();
        let (store, pool) = (path_str(&root, "store"), path_str(&root, "pool"));
        let plan = ["format", &store, "--pool", &format!("a={pool}")];
        let killed = cofs(&plan).env("COFS_FAILPOINT", failpoint).output().unwrap();
        assert_eq!(killed.status.code(), None, "{failpoint} was not reached");
        refused(root.path(), &["config", &store], 1, &["half formatted", "cofs format"]);
        let again = cofs(&plan).output().unwrap();
        assert!(again.status.success(), "{failpoint}: {}", String::from_utf8_lossy(&again.stderr));
        assert_eq!(cofs(&["fsck", &store]).output().unwrap().status.code(), Some(0));
    }
}

#[test]
fn what_is_not_empty_is_not_to_be_formatted() {
    let root = scratch();
    let store = format(&root);
    for part in ["meta", "pool", "pool/objects"].map(|part| format!("{store}/{part}")) {
        refused(
            root.path(),
            &["fsck", &part],
            8,
            &[&part, "lies in a volume's store", &format!("name that: {store}")],
        );
    }
    fs::remove_file(format!("{store}/cofs.toml")).unwrap();
    refused(root.path(), &["dump", &store], 1, &["it has no cofs.toml; restore that", "name the directory"]);
}

#[test]
fn directories_that_cannot_be_written_down_are_refused() {
    let root = scratch();
    let odd = root.path().join(OsStr::from_bytes(b"odd-\xff"));
    let [store, moved, mount] = ["store", "moved", "mount"].map(|name| path_str(&root, name));
    let words = ["odd-\u{fffd}", "no UTF-8", "name another"];
    refused(
        root.path(),
        &["format".as_ref(), OsStr::new(&store), "--meta".as_ref(), odd.as_ref()],
        1,
        &words,
    );
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    let pool = OsString::from_vec([b"a=", odd.as_os_str().as_bytes()].concat());
    refused(root.path(), &["format".as_ref(), OsStr::new(&store), "--pool".as_ref(), &pool], 2, &words[..2]);
    format(&root);
    [odd.as_path(), Path::new(&mount)].iter().for_each(|directory| fs::create_dir(directory).unwrap());
    let supervise = ["mount", "-o", "supervise"].map(OsStr::new);
    refused(root.path(), &[&supervise[..], &[store.as_ref(), odd.as_ref()]].concat(), 1, &words);
    fs::rename(format!("{store}/pool"), odd.join("pool")).unwrap();
    symlink(&odd, &moved).unwrap();
    let setting = format!("pool.default.directory={moved}/pool");
    refused(root.path(), &["config", &store, &setting], 1, &words);
    fs::rename(odd.join("pool"), format!("{store}/pool")).unwrap();
    fs::remove_dir(&odd).unwrap();
    fs::rename(&store, &odd).unwrap();
    refused(root.path(), &[&supervise[..], &[odd.as_ref(), mount.as_ref()]].concat(), 1, &words);
}

#[test]
fn a_format_that_fails_takes_its_directories_back_wherever_they_are() {
    let root = scratch();
    let (store, pool, old) = (path_str(&root, "store"), path_str(&root, "pool"), path_str(&root, "old"));
    fs::create_dir(&old).unwrap();
    let pools = [format!("a={pool}"), format!("b={old}")];
    let line = ["format", &store, "--pool", &pools[0], "--pool", &pools[1], "--meta", "/proc/meta"];
    refused(root.path(), &line, 1, &["/proc/meta"]);
    assert!(Path::new(&old).exists() && !Path::new(&pool).exists());
}
