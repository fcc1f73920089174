//! What the verbs tell of a volume and put right in it: status, info, gc, dump and load, fsck.

mod common;

use std::{fs, os::unix::fs::MetadataExt, process::Command};

use common::{Foreground, Mounted, cofs, format, path_str, run, scratch, skip};

#[test]
fn a_live_volume_answers_for_its_store_and_for_its_paths() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    fs::write(mounted.path("small"), "bytes").unwrap();
    fs::write(mounted.path("large"), vec![1; 4 << 20]).unwrap();
    let uuid = run(&["config", &store, "uuid"]);
    for place in [store.as_str(), mounted.dir.to_str().unwrap(), mounted.path("small").to_str().unwrap()] {
        let status: serde_json::Value =
            serde_json::from_str(&run(&["status", place, "--output", "json"])).unwrap();
        assert_eq!(status["uuid"], uuid.trim(), "{status}");
        assert_eq!(status["mounted"], true, "{status}");
    }
    let info = |name: &str| -> serde_json::Value {
        let text = run(&["info", mounted.path(name).to_str().unwrap(), "--output", "json"]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[0].clone()
    };
    let (small, large) = (info("small"), info("large"));
    assert_ne!(small["inode"], large["inode"]);
    assert!(large.to_string().contains("objects/"), "{large}");
    run(&["gc", mounted.dir.to_str().unwrap()]);
    run(&["gc", &store]);
    for verb in ["fsck", "dump", "config"] {
        let output = cofs(&[verb, mounted.dir.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("is no store: {store} is mounted there; unmount it")), "{said}");
    }
    mounted.unmount();
    run(&["gc", &store]);
    assert_eq!(cofs(&["fsck", &store]).status().unwrap().code(), Some(0));
}

/// What `cofs status` tells of who has a volume in use, and whether that is all.
fn sessions(place: &str) -> (Vec<serde_json::Value>, bool) {
    let status: serde_json::Value =
        serde_json::from_str(&run(&["status", place, "--output", "json"])).unwrap();
    (status["sessions"].as_array().expect("sessions").clone(), status["sessions_complete"].as_bool().unwrap())
}

#[test]
fn status_tells_who_has_a_volume_in_use() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let uid = rustix::process::geteuid().as_raw();
    let uname = rustix::system::uname();
    assert_eq!(sessions(&store), (vec![], false));

    let mounted = Mounted::new(&root, &store, &[]);
    let (all, complete) = sessions(&store);
    assert!(complete && all.len() == 1, "who may write is alone: {all:?}");
    let one = &all[0];
    let pid = one["pid"].as_u64().unwrap();
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim(), "cofs");
    assert_eq!(
        (one["host"].as_str(), one["uid"].as_u64()),
        (uname.nodename().to_str().ok(), Some(uid.into()))
    );
    assert_eq!((one["point"].as_str(), one["access"].as_str()), (mounted.dir.to_str(), Some("rw")));
    assert!(["uring", "dev"].contains(&one["transport"].as_str().unwrap()), "{one}");
    let since = one["since"].as_str().unwrap();
    assert!(since.starts_with("20") && since.ends_with('Z') && since.len() == 20, "{since}");
    let table = run(&["status", mounted.dir.to_str().unwrap()]);
    let row = |name: &str| table.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    assert_eq!(row("sessions.0.pid "), Some(pid.to_string().as_str()), "{table}");
    assert_eq!(row("sessions_complete "), Some("true"));
    mounted.unmount();

    // Several may look; those without a mount are only known to run.
    let looking = fs::File::open(format!("{store}/lock")).unwrap();
    rustix::fs::flock(&looking, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
    let reader = serde_json::json!({"pid": std::process::id(), "host": uname.nodename().to_str().unwrap(), "uid": uid,
        "since": null, "point": null, "access": "ro", "transport": null});
    assert_eq!(sessions(&store), (vec![reader.clone()], false));
    let mounted = Mounted::new(&root, &store, &["-o", "ro"]);
    let second = foreground_read_only(&store, &root.path().join("second"));
    for place in [&mounted.dir, &root.path().join("second")] {
        let (all, complete) = sessions(place.to_str().unwrap());
        let points: Vec<_> = all.iter().map(|session| session["point"].as_str()).collect();
        assert!(!complete && points.len() == 3 && points[0] == place.to_str(), "{all:?}");
        assert!(all.iter().all(|session| session["access"] == "ro") && all[2] == reader, "{all:?}");
        assert_ne!(all[0]["pid"], all[1]["pid"]);
    }
    // `cofs umount` waits for whoever else has the store.
    drop((looking, second));
    mounted.unmount();
}

fn foreground_read_only(store: &str, dir: &std::path::Path) -> Foreground {
    Foreground::start(cofs(&["mount", store, dir.to_str().unwrap(), "-o", "ro"]), dir)
}

#[test]
fn a_dump_is_loaded_into_a_new_volume() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::write(mounted.path("dir/small"), "bytes").unwrap();
    mounted.unmount();
    let file = path_str(&root, "dump");
    run(&["dump", &store, "-o", &file]);
    let again = path_str(&root, "again");
    run(&["load", &again, &file]);
    let mounted = Mounted::new(&root, &again, &[]);
    assert_eq!(fs::read(mounted.path("dir/small")).unwrap(), b"bytes");
    mounted.unmount();
}

/// What fsck says of a volume: its exit code and its document.
fn fsck(store: &str, more: &[&str]) -> (Option<i32>, serde_json::Value) {
    let mut line = vec!["fsck", store, "--output", "json"];
    line.extend(more);
    let output = cofs(&line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}")))
}

/// A volume with one large file in an object: its store, the object's path and the inode.
fn with_object(root: &tempfile::TempDir) -> (String, std::path::PathBuf, u64) {
    let store = format(root);
    let mounted = Mounted::new(root, &store, &[]);
    let file = mounted.path("large");
    fs::write(&file, vec![5; 1 << 20]).unwrap();
    let info: serde_json::Value =
        serde_json::from_str(&run(&["info", file.to_str().unwrap(), "--output", "json"])).unwrap();
    let object = info[0]["object_path"].as_str().unwrap().into();
    let inode = fs::metadata(&file).unwrap().ino();
    mounted.unmount();
    (store, object, inode)
}

#[test]
fn fsck_finds_a_name_without_data() {
    if skip() {
        return;
    }
    let root = scratch();
    let (store, object, inode) = with_object(&root);
    assert_eq!(fsck(&store, &[]).0, Some(0));
    fs::remove_file(object).unwrap();
    let (code, report) = fsck(&store, &[]);
    assert_eq!(code, Some(4), "{report}");
    let said = report["problems"][0]["problem"].as_str().unwrap();
    assert!(said.contains(&format!("of inode {inode} is missing")), "{said}");
    // No repair can bring the bytes back: it must not pretend to.
    assert_eq!(fsck(&store, &["--repair"]).0, Some(4));
}

#[test]
fn fsck_finds_data_without_a_name_and_repair_reclaims_them() {
    if skip() {
        return;
    }
    let root = scratch();
    let (store, object, _) = with_object(&root);
    let twin = object.with_file_name("1ff");
    // With extended attributes: the tag of the object goes along.
    let copied = Command::new("cp").arg("-a").args([&object, &twin]).status().unwrap();
    assert!(copied.success());
    let (code, report) = fsck(&store, &[]);
    assert_eq!(code, Some(4), "{report}");
    assert!(twin.exists(), "a check without --repair changed something");
    let (code, report) = fsck(&store, &["--repair"]);
    assert_eq!(code, Some(1), "{report}");
    assert!(!twin.exists() && object.exists());
    assert_eq!(fsck(&store, &[]).0, Some(0));
}

#[test]
fn fsck_takes_the_size_of_an_object_that_changed_below() {
    if skip() {
        return;
    }
    let root = scratch();
    let (store, object, _) = with_object(&root);
    fs::File::options().write(true).open(&object).unwrap().set_len(65_536).unwrap();
    assert_eq!(fsck(&store, &[]).0, Some(4));
    assert_eq!(fsck(&store, &["--repair"]).0, Some(1));
    assert_eq!(fsck(&store, &[]).0, Some(0));
    let mounted = Mounted::new(&root, &store, &[]);
    assert_eq!(fs::read(mounted.path("large")).unwrap(), vec![5; 65_536]);
    mounted.unmount();
}

#[test]
fn lost_metadata_are_loaded_from_a_dump_and_the_pools_used_again() {
    if skip() {
        return;
    }
    let root = scratch();
    let (store, ..) = with_object(&root);
    let file = path_str(&root, "dump");
    run(&["dump", &store, "-o", &file]);
    let output = cofs(&["load", &store, &file]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("already a volume"));

    fs::remove_dir_all(format!("{store}/meta")).unwrap();
    run(&["load", &store, &file]);
    assert_eq!(fsck(&store, &[]).0, Some(0));
    let mounted = Mounted::new(&root, &store, &[]);
    assert_eq!(fs::read(mounted.path("large")).unwrap(), vec![5; 1 << 20]);
    mounted.unmount();
}

#[test]
fn a_copy_of_a_store_does_not_get_the_pools_of_a_volume_in_use() {
    if skip() {
        return;
    }
    let root = scratch();
    let [store, copy, pool, dir] = ["store", "copy", "pool", "other"].map(|name| path_str(&root, name));
    run(&["format", &store, "--pool", &format!("apart={pool}")]);
    assert!(std::process::Command::new("cp").args(["-a", &store, &copy]).status().unwrap().success());
    fs::create_dir(&dir).unwrap();
    let _not_mounted = Mounted { store: copy.clone(), dir: dir.clone().into() };
    let mounted = Mounted::new(&root, &store, &[]);
    fs::write(mounted.path("large"), vec![5; 1 << 20]).unwrap();
    for (line, code) in [
        (vec!["mount", "-d", &copy, &dir], 1),
        (vec!["mount", "-d", "-o", "ro", &copy, &dir], 1),
        (vec!["gc", &copy], 1),
        (vec!["status", &copy], 1),
        (vec!["fsck", &copy], 8),
        (vec!["fsck", "--repair", &copy], 8),
    ] {
        let output = cofs(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line:?}: {said}");
        for word in ["pool apart", &pool, "in use by another process", "; unmount that volume"] {
            assert!(said.contains(word), "{line:?}: {said}");
        }
    }
    assert_eq!(fs::read(mounted.path("large")).unwrap(), vec![5; 1 << 20]);
    mounted.unmount();
    run(&["gc", &copy]);
}

#[test]
fn a_copy_of_a_store_that_names_the_same_metadata_is_not_read_while_these_are_written() {
    if skip() {
        return;
    }
    let root = scratch();
    let [store, copy, pool, meta, dir] =
        ["store", "copy", "pool", "meta", "other"].map(|name| path_str(&root, name));
    run(&["format", &store, "--pool", &format!("apart={pool}"), "--meta", &meta]);
    assert!(std::process::Command::new("cp").args(["-a", &store, &copy]).status().unwrap().success());
    fs::create_dir(&dir).unwrap();
    let refused = |line: &[&str], code| {
        let output = cofs(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line:?}: {said}");
        assert!(said.contains("in use by another process") && said.contains(&meta), "{line:?}: {said}");
    };
    let mounted = Mounted::new(&root, &store, &[]);
    refused(&["mount", "-d", &copy, &dir], 1);
    refused(&["mount", "-d", "-o", "ro", &copy, &dir], 1);
    refused(&["dump", &copy, "-o", "/dev/null"], 1);
    refused(&["fsck", &copy], 8);
    mounted.unmount();
    assert_eq!(fsck(&copy, &[]).0, Some(0));
    // And the other way round.
    let reads = Mounted::new(&root, &copy, &["-o", "ro"]);
    assert_eq!(fsck(&store, &[]).0, Some(0));
    refused(&["mount", "-d", &store, &dir], 1);
    refused(&["fsck", "--repair", &store], 8);
    reads.unmount();
    assert_eq!(fsck(&store, &["--repair"]).0, Some(0));
}

#[test]
fn a_mount_whose_metadata_are_removed_says_so_and_does_not_end_in_order() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &["-o", "norestart"]);
    fs::write(mounted.path("before"), "before").unwrap();
    while fs::remove_dir_all(format!("{store}/meta")).is_err() {}
    fs::write(mounted.path("after"), "after").unwrap();
    let synced = fs::File::open(mounted.path("after")).unwrap().sync_all();
    assert!(synced.is_err(), "{synced:?}");
    let health = run(&["status", mounted.dir.to_str().unwrap()]);
    assert!(health.contains("failed"), "{health}");
    assert_eq!(fs::read(mounted.path("before")).unwrap(), b"before", "what is there can be saved");
    let output = cofs(&["umount", mounted.dir.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("journal") && said.contains("meta"), "{said}");
}

#[test]
fn a_mount_whose_pool_is_removed_does_not_end_in_order() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &["-o", "norestart"]);
    fs::write(mounted.path("large"), vec![b'l'; 1 << 20]).unwrap();
    while fs::remove_dir_all(format!("{store}/pool")).is_err() {}
    let output = cofs(&["umount", mounted.dir.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("pool"), "{said}");
}

/// A FIFO would be waited for, for ever.
#[test]
fn what_stands_in_the_place_of_a_file_is_told_and_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let root = scratch();
    let store = format(&root);
    let run = |line: &[&str]| {
        let mut command = std::process::Command::new("timeout");
        command.args(["120", env!("CARGO_BIN_EXE_cofs")]).args(line);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (name, said) in [
        ("cofs.toml", "malformed: it is a FIFO"),
        ("lock", "it is a FIFO, and must be a file; move it away"),
        ("pool/cofs-pool.toml", "is malformed: it is no regular file; restore"),
        ("pool/reservations", ""),
        ("meta/CURRENT", "CURRENT: it is a FIFO"),
    ] {
        let (path, away) = (format!("{store}/{name}"), path_str(&root, "away"));
        fs::rename(&path, &away).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for line in [["status", &store], ["fsck", &store], ["gc", &store]] {
            let (code, words) = run(&line);
            assert_ne!(code, Some(124), "{line:?} waited for {name}");
            // fsck tells of a pool that is not there as of what is wrong.
            assert!(line[0] == "fsck" || words.contains(said), "{name}: {line:?}: {words}");
        }
        fs::remove_file(&path).unwrap();
        fs::rename(&away, &path).unwrap();
    }
    assert_eq!(fsck(&store, &[]).0, Some(0));
}

#[test]
fn who_removes_the_lock_of_a_mounted_volume_opens_it_to_nobody() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    fs::remove_file(format!("{store}/lock")).unwrap();
    for line in [vec!["config", &store, "pool.default.tier=flash"], vec!["fsck", &store]] {
        let output = cofs(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("is already mounted on"), "{line:?}: {said}");
    }
    mounted.unmount();
    run(&["config", &store, "pool.default.tier=flash"]);
}

#[test]
fn damaged_metadata_are_told_with_their_place_and_what_to_do() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let tables = || {
        let files = fs::read_dir(format!("{store}/meta")).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "sst")).collect::<Vec<_>>()
    };
    // What a life leaves in the journal the next one puts into a table.
    for life in 0..2 {
        let mounted = Mounted::new(&root, &store, &[]);
        let bytes: Vec<u8> = (0..15_000_u32).map(|at| at.wrapping_mul(at).to_le_bytes()[1]).collect();
        (0..10).for_each(|file| fs::write(mounted.path(&format!("{life}-{file}")), &bytes).unwrap());
        mounted.unmount();
    }
    let table = tables().into_iter().max_by_key(|table| fs::metadata(table).unwrap().len()).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let half = bytes.len() / 2;
    bytes[..half].iter_mut().for_each(|byte| *byte ^= 0xff);
    fs::write(&table, bytes).unwrap();
    for line in [vec!["fsck", &store], vec!["dump", &store, "-o", &path_str(&root, "dump")]] {
        let output = cofs(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let tells = said.contains(table.to_str().unwrap()) && said.contains("from a copy");
        assert!(!output.status.success() && tells, "{line:?}: {said}");
    }
}

#[test]
fn a_pool_that_is_away_is_told_and_nothing_is_taken_for_lost() {
    if skip() {
        return;
    }
    let root = scratch();
    let (store, ..) = with_object(&root);
    let away = path_str(&root, "away");
    fs::rename(format!("{store}/pool"), &away).unwrap();
    let (code, report) = fsck(&store, &[]);
    assert_eq!(code, Some(4 + 8), "{report}");
    assert!(report["problems"].to_string().contains("cannot be read"), "{report}");
    assert!(!report["problems"].to_string().contains("missing"), "{report}");
    let status: serde_json::Value =
        serde_json::from_str(&run(&["status", &store, "--output", "json"])).unwrap();
    assert_eq!(status["pools"][0]["health"], "failed", "{status}");
    fs::rename(&away, format!("{store}/pool")).unwrap();
    assert_eq!(fsck(&store, &[]).0, Some(0));
}
