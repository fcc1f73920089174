//! End to end: format, mount in the background, work, unmount, mount again; signals; refusals.

mod common;

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::{fs::MetadataExt, net::UnixDatagram},
    path::Path,
    process::Command,
};

use common::{
    Foreground, Mounted, cofs, foreground, format, is_mounted, path_str, run, scratch, skip, unmount,
    unwatched, uring_can_be_had, wait_for,
};
use rustix::process::Signal;

#[test]
fn what_is_written_is_there_after_a_remount() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let large: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();

    let mounted = Mounted::new(&root, &store, &[]);
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::write(mounted.path("dir/small"), "a few bytes").unwrap();
    fs::write(mounted.path("dir/large"), &large).unwrap();
    fs::write(mounted.path("empty"), "").unwrap();
    std::os::unix::fs::symlink("dir/small", mounted.path("link")).unwrap();
    fs::hard_link(mounted.path("dir/small"), mounted.path("second")).unwrap();
    fs::rename(mounted.path("empty"), mounted.path("dir/renamed")).unwrap();
    let before = fs::metadata(mounted.path("dir/large")).unwrap();
    mounted.unmount();

    let mounted = Mounted::new(&root, &store, &[]);
    assert_eq!(fs::read(mounted.path("link")).unwrap(), b"a few bytes");
    assert_eq!(fs::read(mounted.path("dir/large")).unwrap(), large);
    assert_eq!(fs::metadata(mounted.path("second")).unwrap().nlink(), 2);
    let after = fs::metadata(mounted.path("dir/large")).unwrap();
    assert_eq!(
        (before.ino(), before.size(), before.mtime_nsec()),
        (after.ino(), after.size(), after.mtime_nsec())
    );
    let mut names: Vec<_> =
        fs::read_dir(mounted.path("dir")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["large", "renamed", "small"]);
    mounted.unmount();
}

#[test]
fn an_acknowledged_change_survives_kill_9() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    let mut child = unwatched(&store, &dir);
    for at in 0..100 {
        fs::write(dir.join(format!("file-{at}")), format!("bytes of {at}")).unwrap();
    }
    child.process.kill().unwrap();
    child.process.wait().unwrap();
    let said =
        String::from_utf8(cofs(&["mount", &store, dir.to_str().unwrap()]).output().unwrap().stderr).unwrap();
    assert!(said.contains("dead") && said.contains("cofs umount"), "{said}");
    for (line, next) in [
        (["info", dir.join("file-0").to_str().unwrap()], format!("(cofs umount {})", dir.display())),
        (["fsck", dir.to_str().unwrap()], "; the process of what is mounted there has ended".to_owned()),
    ] {
        let said = String::from_utf8(cofs(&line).output().unwrap().stderr).unwrap();
        assert!(said.contains(&next), "`{next}` is missing in: {said}");
    }
    run(&["umount", dir.to_str().unwrap()]);

    let mounted = Mounted::new(&root, &store, &[]);
    for at in 0..100 {
        assert_eq!(
            fs::read_to_string(mounted.path(&format!("file-{at}"))).unwrap(),
            format!("bytes of {at}")
        );
    }
    mounted.unmount();
}

#[test]
fn with_auto_unmount_no_dead_mount_stays_after_kill_9() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    let options = |words: &str| cofs(&["mount", &store, dir.to_str().unwrap(), "-o", words]);
    let said = options("auto_unmount,supervise").output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    let flags = || {
        let output = Command::new("findmnt").args(["-n", "-o", "OPTIONS"]).arg(&dir).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let mut plain = foreground(&store, &dir);
    let expected = flags();
    plain.signal(Signal::TERM);
    plain.ends_well();

    let mut watched = Foreground::start(options("auto_unmount"), &dir);
    assert_eq!(flags(), expected, "whoever mounts");
    fs::write(dir.join("file"), "bytes").unwrap();
    // Also while somebody stands in it.
    let open = fs::File::open(dir.join("file")).unwrap();
    watched.process.kill().unwrap();
    watched.process.wait().unwrap();
    wait_for("the mount is taken away", || !is_mounted(&dir));
    drop(open);

    let mut watched = Foreground::start(options("auto_unmount"), &dir);
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"bytes");
    watched.signal(Signal::TERM);
    watched.ends_well();
    assert!(!is_mounted(&dir));
}

#[test]
fn the_service_manager_is_told() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let socket = root.path().join("notify");
    let listener = UnixDatagram::bind(&socket).unwrap();
    listener.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let told = || {
        let mut bytes = [0; 64];
        let len = listener.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let mut command = cofs(&["mount", &store, dir.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", &socket);
    let mut child = Foreground::start(command, &dir);
    assert!(told().contains("READY=1"));
    assert!(is_mounted(&dir), "ready before it was mounted");
    child.signal(Signal::TERM);
    assert!(told().contains("STOPPING=1"));
    child.ends_well();
}

#[test]
fn a_malformed_notify_socket_is_told_and_hinders_nothing() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let here = root.path().join("here");
    let listener = UnixDatagram::bind(&here).unwrap();
    listener.set_nonblocking(true).unwrap();
    for socket in ["here", "vsock:2:1", "@", "/nonexistent/socket", &format!("/{}", "long".repeat(50))] {
        let mut command = cofs(&["mount", "-d", &store, dir.to_str().unwrap()]);
        let output = command.current_dir(&root).env("NOTIFY_SOCKET", socket).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && is_mounted(&dir), "{socket}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{socket}: {said}");
        for word in ["was not told READY=1", "NOTIFY_SOCKET", socket] {
            assert!(said.contains(word), "`{word}` is missing in: {said}");
        }
        Mounted { store: store.clone(), dir: dir.clone() }.unmount();
    }
    assert!(listener.recv(&mut [0; 16]).is_err(), "a path is absolute: in the background we stand elsewhere");
}

#[test]
fn a_volume_is_mounted_once_and_a_place_used_once() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    let dir = mounted.dir.to_str().unwrap().to_owned();
    let other = path_str(&root, "other");
    fs::create_dir(&other).unwrap();
    for line in
        [&["mount", "-d", &store, &dir][..], &["mount", "-d", &store, &other], &["mount", &store, &other]]
    {
        let output = cofs(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("already mounted") && said.trim_end().lines().count() == 1, "{said}");
        assert!(!said.contains("name another"), "another place is refused, too: {said}");
    }
    let said = String::from_utf8(cofs(&["format", &store]).output().unwrap().stderr).unwrap();
    assert!(said.contains("already a volume"), "{said}");
    mounted.unmount();
}

#[test]
fn a_busy_mount_is_not_taken_away_and_its_user_is_named() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    let open = fs::File::create(mounted.path("file")).unwrap();
    let output = cofs(&["umount", mounted.dir.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("in use by") && said.contains(&std::process::id().to_string()), "{said}");
    drop(open);
    mounted.unmount();
}

/// The kernel does it, and says that it did not.
#[test]
fn a_busy_mount_is_taken_away_by_force_and_its_users_are_cut_off() {
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes root");
        return;
    }
    let root = scratch();
    let store = format(&root);
    for options in ["norestart", "restart", "supervise"] {
        let mounted = Mounted::new(&root, &store, &["-o", options]);
        let open = fs::File::create(mounted.path("file")).unwrap();
        let output = cofs(&["umount", "--force", mounted.dir.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("cut off"), "{options}: {said}");
        assert!(!is_mounted(&mounted.dir), "{options}");
        assert!(open.sync_all().is_err(), "{options}");
        drop(open);
        run(&["fsck", &store]);
    }
}

#[test]
fn create_formats_what_is_not_there() {
    if skip() {
        return;
    }
    let root = scratch();
    // A directory's name may end so.
    let store = path_str(&root, "store/");
    let mounted = Mounted::new(&root, &store, &["--create"]);
    fs::write(mounted.path("file"), "bytes").unwrap();
    mounted.unmount();
    let mounted = Mounted::new(&root, &store, &["--create"]);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"bytes");
    mounted.unmount();
}

#[test]
fn a_read_only_mount_refuses_changes() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &["-o", "ro"]);
    let error = fs::write(mounted.path("file"), "bytes").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    mounted.unmount();
}

#[test]
fn as_a_mount_helper_it_mounts_in_the_background() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let helper = root.path().join("mount.fuse.cofs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cofs"), &helper).unwrap();
    let line = [store.as_str(), dir.to_str().unwrap(), "-o", "rw,noatime,_netdev"];
    assert!(Command::new(&helper).args(line).status().unwrap().success());
    let mounted = Mounted { store, dir };
    fs::write(mounted.path("file"), "bytes").unwrap();
    mounted.unmount();
}

#[test]
fn both_transports_and_both_data_paths_serve_and_status_tells_which_and_why() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let large = vec![7; 1 << 20];
    let dev = ("dev", "asked for by option");
    // Whoever asks for io_uring, or for nothing, has it where it can be had (where not: suite `transport`).
    let uring = if uring_can_be_had() { ("uring", "the kernel offers it") } else { ("dev", "uring") };
    for (options, (transport, reason), not_stacking) in [
        ("transport=dev", dev, "io_uring"),
        ("transport=dev,passthrough=off", dev, "io_uring"),
        ("transport=uring,passthrough=off,stacking=off", uring, ""),
        ("threads=1,stacking=off,idle=halt", uring, ""),
    ] {
        let mounted = Mounted::new(&root, &store, &["-o", options]);
        let status: serde_json::Value =
            serde_json::from_str(&run(&["status", &store, "--output", "json"])).unwrap();
        let mount = &status["mount"];
        assert_eq!(mount["transport"], transport, "{options}: {mount}");
        assert!(mount["transport_reason"].as_str().unwrap().contains(reason), "{options}: {mount}");
        assert_eq!(mount["stacking"], false, "{options}: {mount}");
        assert!(mount["stacking_reason"].as_str().unwrap().contains(not_stacking), "{options}: {mount}");
        let halts_as_told = mount["polling_reason"].as_str().unwrap().contains("switched off by option");
        assert_eq!(halts_as_told, options.contains("idle=halt"), "{options}: {mount}");
        assert!(mount["polling"] == false || !halts_as_told, "{options}: {mount}");
        fs::write(mounted.path("large"), &large).unwrap();
        let mut read = Vec::new();
        fs::File::open(mounted.path("large")).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == large, "{options}");
        mounted.unmount();
    }
}

/// What `cofs status` tells of the engine.
fn engine_of(dir: &Path) -> serde_json::Value {
    let told = run(&["status", "--output", "json", dir.to_str().unwrap()]);
    serde_json::from_str::<serde_json::Value>(&told).unwrap()["engine"].take()
}

/// In the background there is nobody else to tell: below, the file system of the metadata dies.
#[test]
fn who_unmounts_is_told_that_the_volume_could_not_be_closed() {
    if skip() {
        return;
    }
    let (outer, root) = (scratch(), scratch());
    let (outer_store, below) = (format(&outer), outer.path().join("mount"));
    // What is written by passthrough needs no process that serves.
    let serve = || {
        let line = ["mount", &outer_store, below.to_str().unwrap(), "-o", "norestart,passthrough=off"];
        Foreground::start(cofs(&line), &below)
    };
    let mut served = serve();
    let (store, meta) = (path_str(&root, "store"), below.join("meta"));
    run(&["format", &store, "--meta", meta.to_str().unwrap()]);
    let mounted = Mounted::new(&root, &store, &[]);
    fs::write(mounted.path("kept"), "bytes").unwrap();
    File::open(mounted.path("kept")).unwrap().sync_all().unwrap();
    fs::write(mounted.path("perhaps"), "bytes").unwrap();
    let said = |output: std::process::Output| String::from_utf8(output.stderr).unwrap();
    let die = |served: &mut Foreground| {
        served.process.kill().unwrap();
        served.process.wait().unwrap();
    };
    let untold = |dir: &Path| {
        let output = cofs(&["umount", dir.to_str().unwrap()]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(!is_mounted(dir));
        said(output)
    };

    let engine = engine_of(&mounted.dir);
    assert_eq!((&engine["health"], &engine["why"]), (&"healthy".into(), &serde_json::Value::Null));

    die(&mut served);
    fs::write(mounted.path("not to be"), "").unwrap_err();
    let engine = engine_of(&mounted.dir);
    let why = engine["why"].as_str().unwrap();
    assert!(why.contains("ing the metadata's journal") && !why.contains("os error"), "{why}");
    // The latter once a sync has failed, which comes by itself.
    assert!(engine["health"] == "stuck" || engine["health"] == "failed", "{engine}");
    let told = untold(&mounted.dir);
    for words in
        [" is unmounted, but", "could not be closed in order: metadata", "not connected; cofs status"]
    {
        assert!(told.contains(words) && told.lines().count() == 1, "{told}");
    }

    // Whoever mounts it next is told, too, and nobody after him.
    run(&["umount", "--dead", below.to_str().unwrap()]);
    let mut served = serve();
    let mount = || cofs(&["mount", "-d", &store, mounted.dir.to_str().unwrap()]).output().unwrap();
    let told = said(mount());
    assert!(told.contains("could not be closed in order"), "{told}");
    assert_eq!(fs::read(mounted.path("kept")).unwrap(), b"bytes");
    unmount(&mounted.dir);
    assert_eq!(said(mount()), "");
    run(&["umount", mounted.dir.to_str().unwrap()]);

    // All of the store is where nothing can be seen any more.
    let store = below.join("store");
    run(&["format", store.to_str().unwrap()]);
    let mounted = Mounted::new(&root, store.to_str().unwrap(), &[]);
    die(&mut served);
    let told = untold(&mounted.dir);
    assert!(told.contains("nobody can tell whether it was closed in order: cannot reach"), "{told}");
}

/// Wherever the descriptors end, the caller is told; and what he was told to serve goes on.
#[test]
fn too_few_open_files_end_a_mount_before_it_is_told_to_serve() {
    if skip() {
        return;
    }
    let (mut served, mut refused) = (0, 0);
    for limit in 16..48 {
        let root = scratch();
        let (store, dir) = (format(&root), root.path().join("mount"));
        fs::create_dir(&dir).unwrap();
        let line = format!("ulimit -n {limit}; exec \"$@\"");
        let mut mount = Command::new("sh");
        mount.args(["-c", &line, "sh", env!("CARGO_BIN_EXE_cofs"), "mount", "-d", &store]).arg(&dir);
        let output = mount.args(["-o", "transport=dev"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            served += 1;
            let mounted = Mounted { store, dir };
            assert_eq!(fs::read_dir(&mounted.dir).unwrap().count(), 0);
            // It may need one more to be closed, and says so.
            wait_for("cofs umount", || {
                let output = cofs(&["umount", mounted.dir.to_str().unwrap()]).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let ended = output.status.success() || said.contains("oo many open files");
                assert!(ended || said.contains("is in use"), "{said}");
                ended
            });
            run(&["fsck", &mounted.store]);
        } else {
            refused += 1;
            assert!(said.contains("oo many open files; have the limit on open files raised"), "{said}");
            assert!(!is_mounted(&dir), "{limit}: {said}");
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
}

/// Wherever the memory ends that it may address, the caller is told; what RocksDB does not get would end the process.
#[test]
fn too_little_memory_is_told_in_one_line() {
    if skip() {
        return;
    }
    let root = scratch();
    let (store, dir) = (format(&root), root.path().join("mount"));
    fs::create_dir(&dir).unwrap();
    let (mut served, mut refused) = (0, 0);
    for mib in [100, 300, 500, 600, 700, 800, 1000, 1100, 1300, 1500, 1600, 1700, 1800, 2000, 2500] {
        let line = format!("ulimit -v {}; exec \"$@\"", mib << 10);
        let mut mount = Command::new("sh");
        mount.args(["-c", &line, "sh", env!("CARGO_BIN_EXE_cofs"), "mount", "-d", &store]).arg(&dir);
        let output = mount.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            served += 1;
            let mounted = Mounted { store: store.clone(), dir: dir.clone() };
            for number in 0..100 {
                fs::write(dir.join(number.to_string()), vec![b'x'; 4096]).unwrap();
            }
            mounted.unmount();
            continue;
        }
        refused += 1;
        assert_eq!(output.status.code(), Some(1), "{mib}: {said}");
        // Where there are many CPUs it may be the stacks of their threads that it is not enough for.
        let words = ["have the limit on memory raised (ulimit -v)", "or that on memory (ulimit -v)"];
        let is_told = words.iter().any(|words| said.contains(words));
        assert!(is_told && said.trim_end().lines().count() == 1, "{mib}: {said}");
        assert!(!is_mounted(&dir), "{mib}: {said}");
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
}

/// Whoever started it may have had a limit on the size of files: one writer who meets it must not end the mount of all.
#[test]
fn a_file_beyond_the_limit_is_refused_and_the_mount_goes_on() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    // In blocks of 512 or 1024 bytes: more than a file of the metadata takes.
    let line = "ulimit -f 50000; exec \"$0\" mount -d \"$1\" \"$2\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_cofs"), &store]).arg(&dir);
    assert!(shell.status().unwrap().success());
    let mounted = Mounted { store: store.clone(), dir };
    let write = |name: &str, bytes: usize| {
        let mut file = File::create(mounted.path(name))?;
        (0..bytes >> 20).try_for_each(|_| file.write_all(&[7; 1 << 20]))?;
        file.sync_all()
    };
    assert_eq!(write("huge", 60 << 20).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    write("large", 3 << 20).unwrap();
    mounted.unmount();
    run(&["fsck", &store]);
}

#[test]
fn umount_8_and_a_new_mount_may_follow_each_other_at_once() {
    if skip() || !rustix::process::geteuid().is_root() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    for round in 0..5 {
        let mounted = Mounted::new(&root, &store, &[]);
        fs::write(mounted.path("large"), vec![round; 4 << 20]).unwrap();
        // A child that another test has just forked may hold our files until it execs.
        wait_for("umount(2)", || {
            rustix::mount::unmount(&mounted.dir, rustix::mount::UnmountFlags::empty()).is_ok()
        });
    }
}

#[test]
fn who_is_handed_a_file_of_the_mount_that_he_is_to_unmount_says_so_and_not_himself() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    fs::write(mounted.path("file"), "").unwrap();
    let line = format!(
        "exec 5<{}; exec {} umount {}",
        mounted.path("file").display(),
        env!("CARGO_BIN_EXE_cofs"),
        mounted.dir.display()
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("in use by what this command was handed; close"), "{said}");
    mounted.unmount();
}
