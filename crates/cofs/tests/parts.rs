//! Parts of a volume that are damaged, another volume's, of a newer format, or away: each verb names the part, and says what to do.

mod common;

use std::{collections::HashSet, fs, os::unix::fs::symlink, path::Path, process::Command};

use common::{Mounted, cofs, format, path_str, refused, run, scratch, skip, wait_for};

#[test]
fn a_newer_or_malformed_configuration_is_refused_by_every_verb() {
    let root = scratch();
    let store = format(&root);
    let mount = path_str(&root, "mount");
    fs::create_dir(&mount).unwrap();
    let config = Path::new(&store).join("cofs.toml");
    let sound = fs::read_to_string(&config).unwrap();
    for (text, word) in [
        (sound.replace("format_version = 1", "format_version = 2"), "newer"),
        (sound.replace("format_version = 1", "format_version = 99999999999"), "newer"),
        (sound.replace("\"pool\"", "\"meta/pool\""), "lie in one another"),
        (sound.replace("\"pool\"", "\"\""), "contains the store"),
        (sound.replace("uuid", "you-you-id"), "malformed"),
        (sound[..sound.len() / 2].to_owned(), "malformed"),
        (String::new(), "malformed"),
    ] {
        fs::write(&config, text).unwrap();
        refused(root.path(), &["mount", &store, &mount], 1, &["cofs.toml", word]);
        refused(root.path(), &["fsck", &store], 8, &["cofs.toml", word]);
        refused(root.path(), &["dump", &store], 1, &["cofs.toml", word]);
        refused(root.path(), &["config", &store], 1, &["cofs.toml", word]);
        refused(root.path(), &["status", &store], 1, &["cofs.toml", word]);
    }
    fs::remove_file(&config).unwrap();
    symlink(&config, &config).unwrap();
    let output = cofs(&["config", &store]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_damaged_or_foreign_part_of_a_store_is_named_with_what_to_do() {
    type Damage = fn(&str);
    let damages: &[(&str, Damage, &[&str])] = &[
        ("gone", |store| fs::remove_dir_all(format!("{store}/meta")).unwrap(), &["no metadata", "cofs load"]),
        (
            "cut",
            |store| fs::remove_file(format!("{store}/meta/CURRENT")).unwrap(),
            &["CURRENT", "load a dump"],
        ),
        (
            "newer",
            |store| {
                fs::write(format!("{store}/meta/cofs-engine"), "cofs engine, rocksdb, version 9\n").unwrap()
            },
            &["version 9", "use a newer cofs"],
        ),
        (
            "manifest",
            |store| {
                let files = fs::read_dir(format!("{store}/meta")).unwrap().map(|file| file.unwrap().path());
                let is_manifest =
                    |path: &std::path::PathBuf| path.to_str().is_some_and(|path| path.contains("MANIFEST"));
                files.filter(is_manifest).for_each(|path| fs::write(path, "").unwrap());
            },
            &["MANIFEST-", "has lost its end; restore that directory"],
        ),
        (
            "a directory",
            |store| {
                fs::remove_file(format!("{store}/meta/CURRENT")).unwrap();
                fs::create_dir(format!("{store}/meta/CURRENT")).unwrap();
            },
            &["CURRENT: Is a directory; restore that directory"],
        ),
        (
            "newer pool",
            |store| {
                let mark = format!("{store}/pool/cofs-pool.toml");
                let text = fs::read_to_string(&mark).unwrap();
                fs::write(&mark, text.replace("version = 1", "version = 9")).unwrap();
            },
            &["pool format 9", "use a newer cofs"],
        ),
    ];
    for (what, damage, words) in damages {
        let root = scratch();
        let store = format(&root);
        let mount = path_str(&root, "mount");
        fs::create_dir(&mount).unwrap();
        damage(&store);
        // Opening for writing may write a log below before it fails.
        for line in [&["status", &store][..], &["mount", "-o", "ro", &store, &mount], &["fsck", &store]] {
            let code = if line[0] == "fsck" { 8 } else { 1 };
            refused(root.path(), line, code, words);
        }
        let output = cofs(&["mount", &store, &mount]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.trim_end().lines().count()), (Some(1), 1), "{what}: {said}");
        words.iter().for_each(|word| assert!(said.contains(word), "`{word}` is missing in: {said}"));
        assert!(!said.contains("newer") || !said.contains("orrupt"), "what is newer is not damaged: {said}");
    }
}

#[test]
fn a_pool_of_another_volume_is_not_taken_for_a_moved_one() {
    let (root, other) = (scratch(), scratch());
    let store = format(&root);
    let foreign = format!("{}/pool", format(&other));
    let setting = format!("pool.default.directory={foreign}");
    refused(
        root.path(),
        &["config", &store, &setting],
        1,
        &[&foreign, "another volume", "name the directory"],
    );
}

/// It would give object numbers out again that newer metadata name, and two files would share an object.
#[test]
fn an_older_copy_of_a_pool_makes_no_object_that_a_file_has_lost() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let (pool, older) = (format!("{store}/pool"), path_str(&root, "older"));
    let bytes = |seed: u8| vec![seed; 100_000];
    let write = |mounted: &Mounted, name: &str, seed| fs::write(mounted.path(name), bytes(seed)).unwrap();
    let mounted = Mounted::new(&root, &store, &[]);
    write(&mounted, "kept", 1);
    mounted.unmount();
    let copied = Command::new("cp").args(["-a", &pool, &older]).status().unwrap();
    assert!(copied.success());
    let mounted = Mounted::new(&root, &store, &[]);
    (0..20).for_each(|at| write(&mounted, &format!("lost-{at}"), 2));
    mounted.unmount();
    fs::remove_dir_all(&pool).unwrap();
    fs::rename(&older, &pool).unwrap();

    let output =
        cofs(&["mount", "-d", &store, root.path().join("mount").to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mounted = Mounted { store: store.clone(), dir: root.path().join("mount") };
    assert!(output.status.success() && said.contains("older than the metadata"), "{said}");
    (0..40).for_each(|at| write(&mounted, &format!("new-{at}"), 3));
    let object = |name: String| {
        let told =
            cofs(&["info", "--output", "json", mounted.path(&name).to_str().unwrap()]).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&told.stdout).unwrap()[0]["object"].to_string()
    };
    let new: HashSet<_> = (0..40).map(|at| object(format!("new-{at}"))).collect();
    assert_eq!(new.len(), 40);
    for at in 0..20 {
        let lost = format!("lost-{at}");
        let error = fs::read(mounted.path(&lost)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::UCLEAN.raw_os_error()), "{lost}");
        assert!(!new.contains(&object(lost.clone())), "{lost}");
        fs::remove_file(mounted.path(&lost)).unwrap();
    }
    run(&["gc", &store]);
    mounted.unmount();
    run(&["fsck", &store]);
    let mounted = Mounted::new(&root, &store, &[]);
    assert_eq!(fs::read(mounted.path("kept")).unwrap(), bytes(1));
    (0..40)
        .for_each(|at| assert_eq!(fs::read(mounted.path(&format!("new-{at}"))).unwrap(), bytes(3), "{at}"));
    mounted.unmount();
}

#[test]
fn metadata_of_another_volume_are_not_taken_for_its_own() {
    let (root, other) = (scratch(), scratch());
    let store = format(&root);
    let foreign = format!("{}/meta", format(&other));
    let words = [&foreign, "another volume", "name the directory"];
    refused(root.path(), &["config", &store, &format!("meta={foreign}")], 1, &words);
    let moved = path_str(&root, "moved");
    fs::rename(format!("{store}/meta"), &moved).unwrap();
    run(&["config", &store, &format!("meta={moved}")]);
    run(&["fsck", &store]);

    // Put there by hand.
    fs::remove_dir_all(&moved).unwrap();
    fs::rename(&foreign, &moved).unwrap();
    let mount = path_str(&root, "mount");
    fs::create_dir(&mount).unwrap();
    let words = [&moved, "another volume", "cofs config STORE meta=DIR"];
    let dump = path_str(&root, "dump");
    for line in [
        &["status", &store][..],
        &["mount", "-o", "ro", &store, &mount],
        &["fsck", &store],
        &["dump", &store, "-o", &dump],
        &["dump", &store],
    ] {
        refused(root.path(), line, if line[0] == "fsck" { 8 } else { 1 }, &words);
    }
    for line in [&["mount", &store, &mount][..], &["gc", &store], &["fsck", "--repair", &store]] {
        let output = cofs(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.iter().all(|word| said.contains(word)), "{line:?}: {said}");
    }
}

#[test]
fn a_dump_of_another_volume_does_not_replace_lost_metadata() {
    let (root, other) = (scratch(), scratch());
    let store = format(&root);
    let dump = path_str(&root, "dump");
    run(&["dump", &format(&other), "-o", &dump]);
    fs::remove_dir_all(format!("{store}/meta")).unwrap();
    fs::create_dir(format!("{store}/meta")).unwrap();
    refused(root.path(), &["load", &store, &dump], 1, &[&dump, "another volume", "new store"]);
}

#[test]
fn a_pool_that_is_away_leads_to_status() {
    let root = scratch();
    let store = format(&root);
    fs::rename(format!("{store}/pool"), path_str(&root, "away")).unwrap();
    let output = cofs(&["gc", &store]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cofs status {store}")) && !said.contains("os error"), "{said}");
}

#[test]
fn a_pool_that_is_away_is_told_by_mount_and_umount() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let (pool, away) = (format!("{store}/pool"), path_str(&root, "away"));
    fs::rename(&pool, &away).unwrap();
    let dir = path_str(&root, "mount");
    fs::create_dir(&dir).unwrap();
    for line in [&["mount", "-d", &store, &dir][..], &["umount", &dir]] {
        let output = cofs(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&pool) && said.contains("cofs-pool.toml is not there"), "{line:?}: {said}");
    }
    fs::rename(&away, &pool).unwrap();
    assert_eq!(cofs(&["fsck", &store]).status().unwrap().code(), Some(0));
}

#[test]
fn a_directory_is_taken_for_a_pool_only_as_a_mount_would() {
    let root = scratch();
    let (store, one, two) = (path_str(&root, "store"), path_str(&root, "one"), path_str(&root, "two"));
    run(&["format", &store, "--pool", &format!("a={one}"), "--pool", &format!("b={two}")]);
    let moved = path_str(&root, "moved");
    fs::rename(&one, &moved).unwrap();
    let mark = Path::new(&moved).join("cofs-pool.toml");
    let sound = fs::read_to_string(&mark).unwrap();
    let setting = format!("pool.a.directory={moved}");
    for (text, words) in [
        (sound.replace("version = 1", "version = 9"), ["pool format 9", "use a newer cofs"]),
        (sound.replace("version = 1", "version = 99999999999"), ["pool format 9", "use a newer cofs"]),
        (sound.replace("version = 1", "version = 0"), ["version 0 does not exist", "restore it from a copy"]),
        (sound.replace("volume", "column"), ["malformed", "restore it from a copy"]),
        (sound[..sound.len() / 2].to_owned(), ["malformed", "restore it from a copy"]),
        (sound.replace("pool = 0", "pool = 1"), ["another volume or pool", "name the directory"]),
    ] {
        fs::write(&mark, text).unwrap();
        refused(root.path(), &["config", &store, &setting], 1, &[&[moved.as_str()], &words[..]].concat());
    }
    fs::write(&mark, sound).unwrap();
    run(&["config", &store, &setting]);
    run(&["fsck", &store]);
}

#[test]
fn parts_that_were_moved_into_one_another_are_refused() {
    let root = scratch();
    let (store, one, two) = (path_str(&root, "store"), path_str(&root, "one"), path_str(&root, "two"));
    run(&["format", &store, "--pool", &format!("a={one}"), "--pool", &format!("b={two}")]);
    fs::rename(&one, format!("{two}/inner")).unwrap();
    fs::rename(format!("{store}/meta"), format!("{two}/objects/meta")).unwrap();
    let linked = path_str(&root, "linked");
    symlink(&two, &linked).unwrap();
    let words = [&two, "lie in one another", "a directory of its own"];
    for setting in [
        format!("pool.a.directory={two}/inner"),
        format!("pool.a.directory={linked}/inner"),
        format!("meta={two}/objects/meta"),
    ] {
        refused(root.path(), &["config", &store, &setting], 1, &words);
    }
}

#[test]
fn a_change_leaves_the_configuration_where_it_is_and_whose_it_is() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let root = scratch();
    let store = format(&root);
    let (config, real) = (Path::new(&store).join("cofs.toml"), root.path().join("real.toml"));
    fs::rename(&config, &real).unwrap();
    symlink(&real, &config).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(&real, Some(65_534), Some(65_534)).unwrap();
    }
    run(&["config", &store, "pool.default.tier=flash"]);
    assert!(config.is_symlink() && fs::read_to_string(&real).unwrap().contains("flash"));
    let now = fs::metadata(&real).unwrap();
    assert_eq!(now.mode() & 0o7777, 0o640);
    assert!(!is_root || (now.uid(), now.gid()) == (65_534, 65_534));
}

#[test]
fn fsck_says_where_a_pool_that_is_away_should_be() {
    let root = scratch();
    let store = format(&root);
    let pool = format!("{store}/pool");
    fs::rename(&pool, path_str(&root, "away")).unwrap();
    for line in [&["fsck", &store][..], &["fsck", "--repair", &store]] {
        let output = cofs(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(12), "{line:?}: {output:?}");
        let words = ["wrong: pool default cannot be read", &pool, "not there", "cofs config"];
        words
            .iter()
            .for_each(|word| assert!(said.contains(word), "{line:?}: `{word}` is missing in: {said}"));
        assert!(!said.contains("os error"), "{said}");
    }
}

#[test]
fn a_pool_without_its_reservations_is_told_with_their_path() {
    let root = scratch();
    let store = format(&root);
    let file = Path::new(&store).join("pool/reservations");
    let sound = fs::read(&file).unwrap();
    let damages: [(fn(&Path) -> std::io::Result<()>, &str); 3] = [
        (|_| Ok(()), "is not there"),
        (|file| fs::write(file, "rubbish"), "is illegible"),
        (|file| fs::create_dir(file), "is not a file"),
    ];
    for (damage, why) in damages {
        fs::remove_file(&file).unwrap();
        damage(&file).unwrap();
        let output = cofs(&["fsck", &store]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(12), "{said}");
        let line = format!("{} {why}; restore it from a copy", file.display());
        assert!(said.lines().next().is_some_and(|first| first.contains(&line)), "{said}");
        assert_eq!(pool_of(&store), ("damaged".into(), Some(line)));
        let _ = fs::remove_dir(&file);
        fs::write(&file, &sound).unwrap();
    }
    run(&["fsck", &store]);
    assert_eq!(pool_of(&store), ("healthy".into(), None));
}

/// What `cofs status` says of a volume's only pool: how it is, and why.
fn pool_of(place: &str) -> (String, Option<String>) {
    let status: serde_json::Value =
        serde_json::from_str(&run(&["status", place, "--output", "json"])).unwrap();
    let text = |field: &str| status["pools"][0][field].as_str().map(str::to_owned);
    (text("health").unwrap(), text("why"))
}

#[test]
fn a_pool_that_may_not_be_read_is_told_without_numbers() {
    let root = scratch();
    let store = format(&root);
    fs::remove_dir_all(format!("{store}/pool")).unwrap();
    fs::write(format!("{store}/pool"), "").unwrap();
    let (health, why) = pool_of(&store);
    let (told, what) = (why.unwrap(), "cofs-pool.toml cannot be read: Not a directory");
    assert_eq!(health, "failed");
    assert!(
        told.starts_with(&format!("{store}/pool: {what}; mend that, or mount its file system there")),
        "{told}"
    );
}

#[test]
fn a_mounted_volume_tells_what_its_pool_has_lost() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    let (file, away) = (format!("{store}/pool/reservations"), path_str(&root, "away"));
    fs::rename(&file, &away).unwrap();
    wait_for("it is told", || pool_of(mounted.dir.to_str().unwrap()).0 == "damaged");
    fs::rename(&away, &file).unwrap();
    wait_for("it is well again", || pool_of(mounted.dir.to_str().unwrap()).0 == "healthy");
    mounted.unmount();
}

#[test]
fn advice_does_not_depend_on_what_directories_are_called() {
    let root = scratch();
    let store = path_str(&root, "one; two");
    run(&["format", &store]);
    fs::remove_dir_all(format!("{store}/meta")).unwrap();
    refused(root.path(), &["status", &store], 1, &["there is no metadata in", "; if they were moved say so"]);
}

#[test]
fn a_pool_without_its_objects_is_told_and_may_begin_anew() {
    let root = scratch();
    let store = format(&root);
    let objects = Path::new(&store).join("pool/objects");
    fs::remove_dir(&objects).unwrap();
    for why in ["is not there", "is not a directory"] {
        let output = cofs(&["fsck", &store]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(12), "{said}");
        assert!(said.contains(&format!("{} {why}", objects.display())) && said.contains("mkdir"), "{said}");
        let (health, told) = pool_of(&store);
        assert_eq!(health, "damaged");
        assert!(told.as_ref().is_some_and(|told| said.contains(told)), "{told:?} is not in {said}");
        fs::write(&objects, "").unwrap();
    }
    fs::remove_file(&objects).unwrap();
    fs::create_dir(&objects).unwrap();
    run(&["fsck", &store]);
}
