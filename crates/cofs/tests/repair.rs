//! `fsck --repair` that is ended in the middle, before and after each of its commits: the next one puts the rest right, and nothing is lost.

mod common;

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    os::unix::{
        fs::{MetadataExt, symlink},
        process::ExitStatusExt,
    },
    path::Path,
    process::Command,
};

use cofs_engine::{Batch, Change, Durability, EmbeddedEngine, EmbeddedOptions, Engine, Outcome};
use common::{Mounted, cofs, format, path_str, run, scratch, skip};
use tempfile::TempDir;

/// Names whose entries are gone, and another name of a file that has kept one.
const LOST: [&str; 5] = ["lost-small", "lost-large", "lost-link", "lost-dir", "lost-second"];

/// A volume with names taken out of its metadata, and what must be in `/lost+found` in the end, by name.
fn damaged(root: &TempDir) -> (String, BTreeMap<String, Vec<u8>>) {
    let store = format(root);
    let mounted = Mounted::new(root, &store, &[]);
    let large: Vec<u8> = (0..300_000_u32).map(|at| (at / 9) as u8).collect();
    fs::write(mounted.path("lost-small"), vec![b's'; 5000]).unwrap();
    fs::write(mounted.path("lost-large"), &large).unwrap();
    symlink("somewhere", mounted.path("lost-link")).unwrap();
    fs::create_dir_all(mounted.path("lost-dir/below")).unwrap();
    fs::write(mounted.path("lost-dir/below/deep"), "deep").unwrap();
    fs::write(mounted.path("kept"), "kept").unwrap();
    fs::hard_link(mounted.path("kept"), mounted.path("lost-second")).unwrap();
    let found_as = |name: &str, below: &str, bytes: &[u8]| {
        let ino = fs::symlink_metadata(mounted.path(name)).unwrap().ino();
        (format!("lost+found/#{ino}{below}"), bytes.to_vec())
    };
    let expected = BTreeMap::from([
        found_as("lost-small", "", &[b's'; 5000]),
        found_as("lost-large", "", &large),
        found_as("lost-dir", "/below/deep", b"deep"),
        ("kept".to_owned(), b"kept".to_vec()),
    ]);
    mounted.unmount();
    take_out(&Path::new(&store).join("meta"));
    (store, expected)
}

/// Removes the entries of [`LOST`] (`docs/design/format.md`: key `E`; a name stands in its value as it is).
fn take_out(meta: &Path) {
    let engine = open(meta);
    let is_of = |value: &[u8], name: &str| value.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    let mut records = records(&engine, b'E');
    records.retain(|_, value| LOST.iter().any(|name| is_of(value, name)));
    assert_eq!(records.len(), LOST.len());
    commit(&engine, records.keys().map(Change::delete).collect());
}

fn open(meta: &Path) -> EmbeddedEngine {
    let options = EmbeddedOptions { keys: cofs_namespace::KEY_SHAPE, ..EmbeddedOptions::new(meta, 32 << 20) };
    EmbeddedEngine::open(&options).unwrap()
}

/// All records of a kind.
fn records(engine: &EmbeddedEngine, tag: u8) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut records = BTreeMap::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        records.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    engine.scan(&[0, 0, tag], &[0, 0, tag + 1], &mut visit).unwrap();
    records
}

fn commit(engine: &EmbeddedEngine, changes: Vec<Change>) {
    let batch = Batch { changes, durability: Durability::Synced, ..Batch::default() };
    assert_eq!(engine.commit(&batch).unwrap(), Outcome::Committed);
}

/// The key of an inode.
fn inode_key(ino: u64) -> Vec<u8> {
    [b"\0\0I", &ino.to_be_bytes()[..]].concat()
}

/// What `fsck` prints, and its exit code.
fn told(store: &str, more: &[&str]) -> (String, Option<i32>) {
    let output = cofs(&[&["fsck", store], more].concat()).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.code())
}

fn fsck(store: &str, more: &[&str]) -> Option<i32> {
    cofs(&[&["fsck", store], more].concat()).output().unwrap().status.code()
}

/// The whole volume again, as it was damaged.
fn copy(store: &str, to: &str) {
    assert!(Command::new("cp").args(["-a", store, to]).status().unwrap().success());
}

fn assert_healed(root: &TempDir, store: &str, expected: &BTreeMap<String, Vec<u8>>, when: &str) {
    assert_eq!(fsck(store, &[]), Some(0), "{when}");
    let mounted = Mounted::new(root, store, &["-o", "ro"]);
    for (name, bytes) in expected {
        let found = fs::read(mounted.path(name)).unwrap_or_else(|error| panic!("{when}: {name}: {error}"));
        assert!(found == *bytes, "{when}: {name} has {} bytes, not {}", found.len(), bytes.len());
    }
    assert_eq!(fs::metadata(mounted.path("kept")).unwrap().nlink(), 1, "{when}");
    // Three files and directories, and a symlink.
    assert_eq!(fs::read_dir(mounted.path("lost+found")).unwrap().count(), 4, "{when}");
    mounted.unmount();
}

/// A repair of a copy with the place armed, and the next one, after which all is well. Whether the first was ended.
fn ended_at(failpoint: &str, root: &TempDir, store: &str, expected: &BTreeMap<String, Vec<u8>>) -> bool {
    let again = path_str(root, "again");
    copy(store, &again);
    let line = ["fsck", "--repair", &again];
    let ended = cofs(&line).env("COFS_FAILPOINT", failpoint).output().unwrap().status;
    if ended.signal().is_some() {
        let code = fsck(&again, &["--repair"]);
        assert!(code == Some(0) || code == Some(1), "{failpoint}: {code:?}");
    } else {
        assert_eq!(ended.code(), Some(1), "{failpoint}: {ended}");
    }
    assert_healed(root, &again, expected, failpoint);
    fs::remove_dir_all(&again).unwrap();
    ended.signal().is_some()
}

#[test]
fn a_repair_that_is_ended_anywhere_is_finished_by_the_next() {
    if skip() {
        return;
    }
    let root = scratch();
    let (store, expected) = damaged(&root);
    assert_eq!(fsck(&store, &[]), Some(4), "nothing is wrong");
    let ended = |place: &str, commit: u32| {
        ended_at(&format!("namespace.repair.{place}:{commit}"), &root, &store, &expected)
    };
    let commits = (1..).take_while(|commit| ended("before_commit", *commit)).count() as u32;
    // One for each of the four without a name, one for the count of links, one where they are put, and the last.
    assert!(commits >= 7, "passed only {commits} times");
    // Behind one commit is before the next, but for the last.
    assert!([1, commits / 2, commits].into_iter().all(|commit| ended("after_commit", commit)));
}

/// An object that nobody may remove at present.
#[test]
fn what_cannot_be_removed_now_is_told_beside_what_was_done() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    fs::write(mounted.path("f"), vec![1; 300_000]).unwrap();
    let objects = Path::new(&store).join("pool/objects");
    let chattr = |flag| {
        let lines = r#"find "$1" -type f -size +250k -exec chattr "$2" {} +"#;
        Command::new("sh").args(["-c", lines, "sh"]).arg(&objects).arg(flag).status().unwrap().success()
    };
    if !chattr("+i") {
        mounted.unmount();
        return eprintln!("skipped: no file can be made immutable here");
    }
    fs::remove_file(mounted.path("f")).unwrap();
    let gc = cofs(&["gc", &store]).output().unwrap();
    let told = String::from_utf8_lossy(&gc.stderr).into_owned();
    mounted.unmount();
    let repaired = cofs(&["fsck", "--repair", &store]).output().unwrap();
    assert!(chattr("-i"));
    assert!(!gc.status.success() && !told.contains("only be collected"), "{told}");
    let said = String::from_utf8_lossy(&repaired.stdout).into_owned();
    assert_eq!(repaired.status.code(), Some(4), "{repaired:?}");
    assert!(said.contains("could not all be removed") && said.contains("inodes"), "{said}");
    assert_eq!(fsck(&store, &["--repair"]), Some(0));
}

#[test]
fn what_a_newer_cofs_has_written_is_left_alone() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    fs::write(mounted.path("large"), vec![1; 300_000]).unwrap();
    let key = inode_key(fs::metadata(mounted.path("large")).unwrap().ino());
    mounted.unmount();
    let meta = Path::new(&store).join("meta");
    let kinds = b"BEHIRSUWX";
    let all = |engine: &EmbeddedEngine| kinds.map(|tag| records(engine, tag));
    let engine = open(&meta);
    let sound = records(&engine, b'I').remove(&key).unwrap();
    // And a damage, which an older cofs must not mend either.
    commit(&engine, vec![Change::put(&key, b"\x63rot".to_vec()), Change::put(b"\0\0Zunknown", vec![1])]);
    let before = all(&engine);
    drop(engine);
    for more in [&[][..], &["--repair"]] {
        let (text, code) = told(&store, more);
        assert_eq!(code, Some(8), "{text}");
        assert!(text.contains("newer cofs") && text.lines().count() == 1, "{text}");
    }
    let engine = open(&meta);
    assert_eq!(all(&engine), before);
    commit(&engine, vec![Change::put(&key, sound), Change::delete(b"\0\0Zunknown")]);
    drop(engine);
    assert_eq!(fsck(&store, &[]), Some(0));
}

/// Nothing can be right of both, and a tag that names one of them need not change.
#[test]
fn the_tag_of_a_shared_object_stays_with_one_of_its_inodes() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    let [first, second] = ["first", "second"].map(|name| {
        fs::write(mounted.path(name), vec![1; 300_000]).unwrap();
        inode_key(fs::metadata(mounted.path(name)).unwrap().ino())
    });
    mounted.unmount();
    let engine = open(&Path::new(&store).join("meta"));
    let value = records(&engine, b'I').remove(&first).unwrap();
    commit(&engine, vec![Change::put(&second, value)]);
    drop(engine);
    // The second's object is nobody's any more.
    let (text, code) = told(&store, &["--repair"]);
    assert!(code == Some(5) && text.contains("belongs to inodes") && !text.contains("tagged"), "{text}");
    let (text, code) = told(&store, &["--repair"]);
    assert!(code == Some(4) && !text.contains("corrected"), "{text}");
}

/// A volume with two files of 2 MiB whose inodes are unreadable, one of them without a name; and the number of that one.
fn unreadable(root: &TempDir) -> (String, u64) {
    let store = format(root);
    let mounted = Mounted::new(root, &store, &[]);
    let numbers = ["kept", "lost-large"].map(|name| {
        fs::write(mounted.path(name), vec![name.as_bytes()[0]; 2 << 20]).unwrap();
        fs::metadata(mounted.path(name)).unwrap().ino()
    });
    fs::hard_link(mounted.path("kept"), mounted.path("again")).unwrap();
    symlink("kept", mounted.path("link")).unwrap();
    let link = fs::symlink_metadata(mounted.path("link")).unwrap().ino();
    mounted.unmount();
    let engine = open(&Path::new(&store).join("meta"));
    let [first, second] = numbers;
    let mut changes: Vec<_> = [first, second, link]
        .into_iter()
        .map(|ino| Change::put(inode_key(ino), b"\x01rot".to_vec()))
        .collect();
    let entries = records(&engine, b'E');
    changes.extend(
        entries
            .iter()
            .filter(|(_, value)| value.ends_with(b"lost-large"))
            .map(|(key, _)| Change::delete(key)),
    );
    assert_eq!(changes.len(), 4);
    commit(&engine, changes);
    (store, second)
}

#[test]
fn files_whose_inodes_are_lost_get_their_objects_back() {
    if skip() {
        return;
    }
    let root = scratch();
    let (store, nameless) = unreadable(&root);
    assert_eq!(told(&store, &[]).1, Some(4));
    let (text, code) = told(&store, &["--repair"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("make it anew for object") && !text.contains("reclaim list"), "{text}");
    assert_eq!(fsck(&store, &[]), Some(0));
    let mounted = Mounted::new(&root, &store, &["-o", "ro"]);
    let found = format!("lost+found/#{nameless}");
    for (name, byte, links) in [("kept", b'k', 2), ("again", b'k', 2), (&found, b'l', 1)] {
        let metadata = fs::metadata(mounted.path(name)).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.nlink()), (0o600, 0, links), "{name}");
        assert!(fs::read(mounted.path(name)).unwrap() == vec![byte; 2 << 20], "{name}");
    }
    // Of a symlink nothing is left but its name.
    assert!(fs::symlink_metadata(mounted.path("link")).is_err());
    mounted.unmount();
}

#[test]
fn nothing_is_repaired_while_a_pool_is_away_that_may_have_the_bytes_of_a_lost_inode() {
    if skip() {
        return;
    }
    let root = scratch();
    let (store, _) = unreadable(&root);
    let (pool, away) = (format!("{store}/pool"), path_str(&root, "away"));
    fs::rename(&pool, &away).unwrap();
    let (text, code) = told(&store, &["--repair"]);
    assert_eq!(code, Some(8), "{text}");
    assert!(text.contains("inodes of files are lost") && text.contains(&pool), "{text}");
    fs::rename(&away, &pool).unwrap();
    assert_eq!(fsck(&store, &["--repair"]), Some(1));
    let mounted = Mounted::new(&root, &store, &["-o", "ro"]);
    assert!(fs::read(mounted.path("kept")).unwrap() == vec![b'k'; 2 << 20]);
    mounted.unmount();
}

#[test]
fn what_is_younger_than_the_dump_that_was_loaded_is_found_again() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dump = path_str(&root, "dump");
    run(&["dump", &store, "-o", &dump]);
    let mounted = Mounted::new(&root, &store, &[]);
    // Beyond the numbers that the dump has reserved.
    (0..3000).for_each(|at| fs::write(mounted.path(&format!("small-{at}")), "").unwrap());
    fs::write(mounted.path("large"), vec![7; 300_000]).unwrap();
    let ino = fs::metadata(mounted.path("large")).unwrap().ino();
    mounted.unmount();
    fs::remove_dir_all(Path::new(&store).join("meta")).unwrap();
    run(&["load", &store, &dump]);
    let (text, code) = told(&store, &[]);
    assert!(code == Some(4) && text.contains(&format!("belongs to inode {ino}, which is lost")), "{text}");
    let (text, code) = told(&store, &["--repair"]);
    assert!(code == Some(1) && !text.contains("reclaim list"), "{text}");
    assert_eq!(fsck(&store, &[]), Some(0));
    let mounted = Mounted::new(&root, &store, &[]);
    assert!(fs::read(mounted.path(&format!("lost+found/#{ino}"))).unwrap() == vec![7; 300_000]);
    // Its number is not given out again.
    fs::write(mounted.path("new"), "").unwrap();
    assert!(fs::metadata(mounted.path("new")).unwrap().ino() > ino);
    mounted.unmount();
}

/// Programs that save space make one file of those that are alike.
#[test]
fn objects_that_are_one_file_are_told_until_the_files_are_copied() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    for name in ["one", "two"] {
        fs::write(mounted.path(name), vec![b'a'; 100_000]).unwrap();
    }
    let [one, two] = ["one", "two"].map(|name| {
        let info = run(&["info", mounted.path(name).to_str().unwrap(), "--output", "json"]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let text = info.to_string();
        text.split('"').find(|part| part.contains("/objects/")).unwrap().to_owned()
    });
    mounted.unmount();
    fs::remove_file(&two).unwrap();
    fs::hard_link(&one, &two).unwrap();
    for arguments in [&[][..], &["--repair"], &["--repair"]] {
        let (text, code) = told(&store, arguments);
        assert_eq!((code, text.matches("one file with others").count()), (Some(4), 2), "{text}");
    }
    let mounted = Mounted::new(&root, &store, &[]);
    for name in ["one", "two"] {
        fs::copy(mounted.path(name), mounted.path("copy")).unwrap();
        fs::rename(mounted.path("copy"), mounted.path(name)).unwrap();
    }
    mounted.unmount();
    assert_eq!(fsck(&store, &["--repair"]), Some(0));
}
