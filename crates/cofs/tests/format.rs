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
    process::{Command, Stdio},
};

use common::{cofs, contents, format, path_str, refused, run, scratch};

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

/// Runs a line that ends at a failpoint, as `kill -9` would end it.
#[track_caller]
fn killed_at(failpoint: &str, arguments: &[&str]) {
    let output = cofs(arguments).env("COFS_FAILPOINT", failpoint).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), None, "{failpoint} was not reached: {said}");
}

#[test]
fn a_half_written_store_is_named_so_and_formatted_when_asked_again() {
    let root = scratch();
    let store = path_str(&root, "store");
    killed_at("cofs.format.made", &["format", &store]);
    let mount = path_str(&root, "mount");
    fs::create_dir(&mount).unwrap();
    refused(root.path(), &["mount", &store, &mount], 1, &["half formatted", &format!("cofs format {store}")]);
    run(&["format", &store]);
    assert!(Path::new(&store).join("cofs.toml").exists());
}

#[test]
fn the_line_that_begins_anew_what_was_interrupted_is_told_whole() {
    let root = scratch();
    let [store, pool, meta] = ["a store", "pool", "it's meta"].map(|name| path_str(&root, name));
    let pool = format!("a={pool},tier=flash");
    let line = ["format", &store, "--pool", &pool, "--meta", &meta, "--inline-max", "1K"];
    killed_at("cofs.format.planned", &line);
    let said = String::from_utf8(cofs(&["status", &store]).output().unwrap().stderr).unwrap();
    let (_, again) = said.split_once("run it again: cofs ").unwrap();
    let again = format!("{} {again}", env!("CARGO_BIN_EXE_cofs"));
    assert!(Command::new("bash").args(["-c", &again]).output().unwrap().status.success(), "{again}");
    let shown = run(&["config", &store]);
    for word in ["pool.a.tier", "flash", "it's meta", "1.00 KiB"] {
        assert!(shown.contains(word), "`{word}` is missing in: {shown}");
    }
}

/// As a `cofs.toml` that was renamed: no claim says that it is half made.
#[test]
fn what_stands_beside_no_claim_is_not_cleared_away() {
    let root = scratch();
    let store = format(&root);
    let config = Path::new(&store).join("cofs.toml");
    fs::rename(&config, Path::new(&store).join("formatting.toml")).unwrap();
    refused(root.path(), &["format", &store], 1, &["is not empty"]);
    fs::rename(Path::new(&store).join("formatting.toml"), &config).unwrap();
    run(&["fsck", &store]);
}

#[test]
fn a_directory_that_another_volume_has_taken_meanwhile_is_left_to_it() {
    let root = scratch();
    let [first, second, meta] = ["first", "second", "meta"].map(|name| path_str(&root, name));
    let dump = path_str(&root, "dump");
    for again in [&["format", &first][..], &["load", &first, &dump]] {
        fs::create_dir(&meta).unwrap();
        killed_at("cofs.format.planned", &["format", &first, "--meta", &meta]);
        run(&["format", &second, "--meta", &meta]);
        run(&["dump", &second, "-o", &dump]);
        fs::write(format!("{meta}/precious"), "data").unwrap();
        refused(root.path(), &["format", &first, "--meta", &meta], 1, &[&meta, "is not empty"]);
        let before = contents(Path::new(&meta));
        run(again);
        assert!(contents(Path::new(&meta)) == before, "{again:?} changed another volume's metadata");
        [&first, &second].iter().for_each(|store| drop(run(&["fsck", store])));
        [&first, &second, &meta].iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
    }
}

/// One that ended just when it had put its claim there, before it saw that another had been faster.
#[test]
fn what_was_there_before_a_claim_stays() {
    let root = scratch();
    let [first, second, meta] = ["first", "second", "meta"].map(|name| path_str(&root, name));
    killed_at("cofs.format.planned", &["format", &first, "--meta", &meta]);
    run(&["format", &second, "--meta", &meta]);
    let plan = fs::read_to_string(format!("{first}/formatting.toml")).unwrap();
    let volume = plan.lines().find_map(|line| line.strip_prefix("uuid = ")).unwrap().trim_matches('"');
    symlink(format!("format:{volume}:wanted:found:{first}"), format!("{meta}/cofs-claim")).unwrap();
    run(&["format", &first]);
    [&first, &second].iter().for_each(|store| drop(run(&["fsck", store])));
    assert!(fs::symlink_metadata(format!("{meta}/cofs-claim")).is_err());
}

#[test]
fn what_others_put_beside_a_half_made_part_stays() {
    let root = scratch();
    let [store, pool, meta] = ["store", "pool", "meta"].map(|name| path_str(&root, name));
    killed_at("cofs.format.made", &["format", &store, "--pool", &format!("a={pool}"), "--meta", &meta]);
    for part in [&pool, &meta] {
        fs::write(format!("{part}/precious"), "data").unwrap();
    }
    run(&["format", &store]);
    for part in [&pool, &meta] {
        let left: Vec<_> = fs::read_dir(part).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["precious"]);
    }
}

#[test]
fn of_two_formats_at_once_into_one_directory_one_succeeds() {
    let root = scratch();
    let (stores, part) = (["a", "b"].map(|name| path_str(&root, name)), path_str(&root, "part"));
    for round in 0..8 {
        let (option, value) =
            if round % 2 == 0 { ("--meta", part.clone()) } else { ("--pool", format!("a={part}")) };
        let start = |store: &String| {
            let mut line = cofs(&["format", store, option, &value]);
            line.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let outputs = stores.each_ref().map(start).map(|child| child.wait_with_output().unwrap());
        let won = outputs.each_ref().map(|output| output.status.success());
        assert!(won[0] != won[1], "{outputs:?}");
        let (winner, loser) = if won[0] { (0, 1) } else { (1, 0) };
        let said = String::from_utf8_lossy(&outputs[loser].stderr);
        assert!(said.contains(&part) && said.contains("; name a"), "{said}");
        run(&["fsck", &stores[winner]]);
        assert!(!Path::new(&stores[loser]).exists());
        [&stores[winner], &part].iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
    }
}

#[test]
fn a_directory_of_an_interrupted_format_is_told_to_be_so() {
    let root = scratch();
    let [first, second, meta] = ["first", "second", "meta"].map(|name| path_str(&root, name));
    killed_at("cofs.format.claimed", &["format", &first, "--meta", &meta]);
    let again = format!("(cofs format {first} --meta {meta})");
    let words = [&meta, "is being made a part of the volume in", &again];
    refused(root.path(), &["format", &second, "--meta", &meta], 1, &words);
    refused(root.path(), &["format", &second, "--pool", &format!("a={first}")], 1, &["being made a volume"]);
    refused(root.path(), &["format", &format!("{meta}/below")], 1, &[&meta, "lies in"]);
    run(&["format", &first, "--meta", &meta]);
    run(&["fsck", &first]);
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
    for place in ["begun", "planned", "claimed", "pools", "made", "named"] {
        for outside in [false, true] {
            let root = scratch();
            let [store, pool, meta] = ["store", "pool", "meta"].map(|name| path_str(&root, name));
            let pool = format!("a={pool}");
            let line = ["format", &store, "--pool", &pool, "--meta", &meta];
            let line = if outside { &line[..] } else { &line[..2] };
            killed_at(&format!("cofs.format.{place}"), line);
            match place {
                "begun" => refused(root.path(), &["config", &store], 1, &["not a volume", "cofs format"]),
                "named" => refused(root.path(), line, 1, &["already a volume"]),
                _ => refused(root.path(), &["config", &store], 1, &["half formatted", "cofs format"]),
            }
            if place != "named" {
                run(line);
            }
            run(&["fsck", &store]);
            let claims = contents(root.path()).into_keys().filter(|name| name.contains("cofs-claim")).count();
            assert!(claims == 0 || place == "named", "{place} left {claims} claims");
        }
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

#[test]
fn a_format_that_fails_leaves_an_empty_directory_empty() {
    let root = scratch();
    let (store, pool) = (path_str(&root, "store"), path_str(&root, "pool"));
    fs::create_dir(&store).unwrap();
    for line in [
        ["format", &store, "--meta", "/nonexistent/x/y"],
        ["format", &store, "--meta", "/proc/meta"],
        ["format", &store, "--pool", "a=/proc/pool"],
    ] {
        assert_eq!(cofs(&line).output().unwrap().status.code(), Some(1));
        assert_eq!(fs::read_dir(&store).unwrap().count(), 0, "{line:?} left something");
    }
    // As an earlier version left it.
    fs::create_dir(&pool).unwrap();
    fs::write(format!("{pool}/lock"), "").unwrap();
    let words = [&pool, "is not empty: it holds lock; name a directory"];
    refused(root.path(), &["format", &store, "--pool", &format!("a={pool}")], 1, &words);
    refused(root.path(), &["format", &store, "--meta", &pool], 1, &words);
    run(&["format", &pool]);
}

#[test]
fn a_format_below_a_path_that_is_too_long_makes_nothing() {
    let root = scratch();
    let deep =
        "cd \"$1\"; for at in $(seq 25); do mkdir $2 && cd $2 || exit 9; done; \"$3\" format s; echo $?; ls";
    let (at, name) = (root.path().to_str().unwrap(), "d".repeat(200));
    let line = ["-c", deep, "bash", at, &name, env!("CARGO_BIN_EXE_cofs")];
    let output = Command::new("bash").args(line).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n");
}

#[test]
fn what_lies_in_another_volume_is_refused() {
    let root = scratch();
    let (store, new) = (format(&root), path_str(&root, "new"));
    let words =
        |part: &str| [format!("lies in {store}{part}, which is"), "name a directory outside".to_owned()];
    for (inner, part) in [("x", ""), ("meta/x", "/meta"), ("pool/x", "/pool"), ("pool/objects/x", "/pool")] {
        let inner = format!("{store}/{inner}");
        let words = words(part);
        let words = [words[0].as_str(), &words[1]];
        refused(root.path(), &["format", &inner], 1, &words);
        refused(root.path(), &["format", &new, "--meta", &inner], 1, &words);
        refused(root.path(), &["format", &new, "--pool", &format!("a={inner}")], 1, &words);
    }
    // What only is called so.
    let other = path_str(&root, "other");
    for name in ["cofs-engine", "cofs-pool.toml", "cofs.toml", "objects"] {
        fs::create_dir_all(format!("{other}/{name}")).unwrap();
    }
    run(&["format", &format!("{other}/objects/x")]);
}

#[test]
fn a_file_system_that_was_just_made_counts_as_empty() {
    let root = scratch();
    let parts = ["store", "pool", "meta"].map(|name| path_str(&root, name));
    parts.iter().for_each(|part| fs::create_dir_all(format!("{part}/lost+found")).unwrap());
    let [store, pool, meta] = &parts;
    run(&["format", store, "--pool", &format!("a={pool}"), "--meta", meta]);
    run(&["fsck", store]);
    let dump = path_str(&root, "dump");
    run(&["dump", store, "-o", &dump]);
    fs::remove_dir_all(meta).unwrap();
    fs::create_dir_all(format!("{meta}/lost+found")).unwrap();
    run(&["load", store, &dump]);
    run(&["fsck", store]);
}

#[test]
fn the_hint_how_to_mount_is_one_line_for_a_shell() {
    let root = scratch();
    for name in ["a b".as_bytes(), b"-x", b"new\nline", b"odd \xff", b"it's"] {
        let name = OsStr::from_bytes(name);
        let mut line = cofs(&[OsStr::new("format"), OsStr::new("--"), name]);
        let output = line.current_dir(root.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let hint = said.strip_prefix("Formatted. Mount it: cofs mount -d ").unwrap();
        let word = hint.strip_suffix(" DIR\n").unwrap();
        assert!(!word.contains('\n'), "{said}");
        let look = format!("ls -d {word}/cofs.toml");
        let found = Command::new("bash").args(["-c", &look]).current_dir(root.path()).output().unwrap();
        assert!(found.status.success(), "{said}");
    }
}
