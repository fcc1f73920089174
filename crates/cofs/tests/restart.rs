//! A volume that is mounted anew when the process that serves it has died (`-o restart`, the default), and how what watches over it ends.

mod common;

use std::{
    fs,
    io::{self, Write},
    os::{
        fd::AsRawFd,
        unix::{fs::PermissionsExt, process::ExitStatusExt},
    },
    path::Path,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    thread::sleep,
    time::{Duration, Instant},
};

use common::{
    Foreground, Mounted, cofs, format,
    lives::{A_LIFE, child_of, foreground_with, is_alive, is_stopped, kill, pid, status},
    path_str, run, scratch, unwatched, uring_can_be_had, wait_for,
};
use rustix::{
    fs::{AtFlags, CWD, StatxFlags, statx},
    mount::{MountFlags, UnmountFlags},
    process::{Pid, Signal, kill_process},
};

/// FUSE_SUPER_MAGIC.
const FUSE: i64 = 0x6573_5546;

/// Kills the process that serves, and waits until another serves in a new mount, the only one.
fn is_mounted_anew(mounted: &Mounted) {
    fs::write(mounted.path("a"), "a").unwrap();
    let supervisor = pid(&mounted.dir, "supervisor");
    let before = kill(&mounted.dir);
    wait_for("the next mount", || fs::read(mounted.path("a")).is_ok_and(|bytes| bytes == b"a"));
    assert_ne!(pid(&mounted.dir, "pid"), before);
    assert_eq!(pid(&mounted.dir, "supervisor"), supervisor);
    assert_eq!(mounts_on(&mounted.dir), 1);
}

/// What is in hand over io_uring is lost with the process: the volume is mounted anew, and no dead mount stays.
#[test]
fn over_io_uring_the_volume_is_mounted_anew() {
    let transport = if uring_can_be_had() { "uring" } else { "dev" };
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &["-o", "supervise,transport=uring"]);
    let told = status(&mounted.dir);
    assert_eq!((&told["mount"]["survives"], &told["mount"]["transport"]), (&false.into(), &transport.into()));
    is_mounted_anew(&mounted);
    mounted.unmount();
}

/// Through passthrough the kernel goes on writing for who had a file open, in the name of the dead mount.
#[test]
fn what_is_written_through_a_dead_mount_is_in_the_size() {
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    let size = || fs::metadata(mounted.path("log")).unwrap().len();
    fs::write(mounted.path("log"), vec![b'a'; 300_000]).unwrap();
    let mut log = fs::File::options().append(true).open(mounted.path("log")).unwrap();
    log.write_all(&[b'b'; 100_000]).unwrap();
    let passthrough = status(&mounted.dir)["mount"]["passthrough"] == true;
    kill(&mounted.dir);
    wait_for("the next mount", || fs::metadata(mounted.path("log")).is_ok());
    let written = log.write(&[b'c'; 50_000]).unwrap_or(0) as u64;
    assert_eq!(written > 0, passthrough, "the kernel writes it");
    assert_eq!(size(), 400_000 + written);
    drop(log);
    assert_eq!(size(), 400_000 + written);
    assert_eq!(fs::read(mounted.path("log")).unwrap().len() as u64, size());
    mounted.unmount();
    run(&["fsck", &store]);
}

/// A full disk, or somebody who read along and has ended.
#[test]
fn messages_that_nobody_takes_keep_no_volume_from_being_mounted_anew() {
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &["--log-file", "/dev/full"]);
    is_mounted_anew(&mounted);
    // In use, it is told of before its users are cut off.
    let open = fs::File::create(mounted.path("open")).unwrap();
    let supervisor = pid(&mounted.dir, "supervisor");
    kill_process(supervisor, Signal::TERM).unwrap();
    wait_for("its end", || !is_alive(supervisor));
    assert_eq!(mounts_on(&mounted.dir), 0);
    drop(open);
}

/// Of what stands at `dir`, which nobody is asked for.
fn device(dir: &Path) -> (u32, u32) {
    let found = statx(CWD, dir, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).unwrap();
    (found.stx_dev_major, found.stx_dev_minor)
}

fn is_linux(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// Nobody else watches over it.
#[test]
fn in_the_background_the_volume_is_mounted_anew() {
    let root = scratch();
    let store = format(&root);
    let from = root.path().join("from");
    fs::create_dir(&from).unwrap();
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let below = device(&dir);
    let mut command = cofs(&["mount", "-d", &store, dir.to_str().unwrap()]);
    assert!(command.current_dir(&from).status().unwrap().success());
    fs::remove_dir(&from).unwrap();
    let mounted = Mounted { store, dir };
    let told = status(&mounted.dir);
    let passthrough = told["mount"]["passthrough"].clone();
    assert_eq!((&told["mount"]["survives"], &told["mount"]["life"]), (&false.into(), &0.into()));
    let open = fs::File::create(mounted.path("open")).unwrap();
    let seen_below = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let at_work = |work: &dyn Fn()| {
            let begun = Instant::now();
            while begun.elapsed() < 5 * A_LIFE {
                work();
            }
        };
        // The directory below, which may lie open for an instant, may have got something by then.
        let write = || (0..100).for_each(|at| drop(fs::write(mounted.path(&format!("at-work-{at}")), "x")));
        scope.spawn(move || at_work(&write));
        let look = || {
            seen_below.fetch_add(u32::from(device(&mounted.dir) == below), Relaxed);
        };
        scope.spawn(move || at_work(&look));
        is_mounted_anew(&mounted);
    });
    if rustix::process::geteuid().is_root() && is_linux(6, 5) {
        assert_eq!(seen_below.into_inner(), 0);
    }
    // What was open is not.
    assert!(open.metadata().is_err() && mounted.path("open").exists());
    drop(open);
    // And once more.
    is_mounted_anew(&mounted);
    assert_eq!(status(&mounted.dir)["mount"]["passthrough"], passthrough);
    let supervisor = pid(&mounted.dir, "supervisor");
    mounted.unmount();
    wait_for("its end", || !is_alive(supervisor));
}

/// Puts a script in the place of the program, which runs `line` and then the program itself.
fn put_script(program: &str, line: &str) {
    let script = format!("{program}.script");
    fs::write(&script, format!("#!/bin/sh\n{line}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_cofs"))).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&script, program).unwrap();
}

fn mounts_on(dir: &Path) -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap().matches(dir.to_str().unwrap()).count()
}

/// Where one may end who replaces a dead mount, here.
fn arrows() -> Vec<&'static str> {
    let beneath = rustix::process::geteuid().is_root() && is_linux(6, 5);
    let between: &[_] = if beneath {
        &["cofs.replace.made", "cofs.replace.beneath", "cofs.replace.alone"]
    } else {
        &["cofs.replace.told", "cofs.replace.taken_away"]
    };
    [between, &["cofs.mount.attached", "cofs.mount.served"]].concat()
}

#[test]
fn who_ends_while_he_replaces_a_dead_mount_leaves_none_and_nothing_is_seen_below() {
    for arrow in arrows() {
        for times in 1..=2_usize {
            let root = scratch();
            let store = format(&root);
            let dir = root.path().join("mount");
            fs::create_dir(&dir).unwrap();
            let below = device(&dir);
            let (mut child, program) = foreground_with(&root, &store, "restart", &[]);
            let mounted = Mounted { store, dir };
            fs::write(mounted.path("a"), "a").unwrap();
            let lives = path_str(&root, "lives");
            let dies = format!("[ $(wc -l <{lives}) -gt {times} ] || export COFS_FAILPOINT={arrow}");
            put_script(&program, &format!("echo >>{lives}\n{dies}"));
            let (seen_below, ends) = (AtomicU32::new(0), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let begun = Instant::now();
                    while !ends.load(Relaxed) && begun.elapsed() < Duration::from_secs(60) {
                        seen_below.fetch_add(u32::from(device(&mounted.dir) == below), Relaxed);
                    }
                });
                kill(&mounted.dir);
                // As many as are to die there, and one that serves. (By then a dying one may have answered, too.)
                let has_begun = || fs::read(&lives).map_or(0, |lines| lines.len()) > times;
                let serves = || fs::read(mounted.path("a")).is_ok_and(|bytes| bytes == b"a");
                wait_for(arrow, || has_begun() && serves());
                ends.store(true, Relaxed);
            });
            assert_eq!(fs::read(&lives).unwrap().len(), times + 1, "{arrow}");
            assert_eq!(mounts_on(&mounted.dir), 1, "{arrow}");
            if arrows().contains(&"cofs.replace.beneath") {
                assert_eq!(seen_below.into_inner(), 0, "{arrow}: seen below");
            }
            let dir = mounted.dir.clone();
            mounted.unmount();
            assert!(child.wait().unwrap().success(), "{arrow}");
            assert_eq!(mounts_on(&dir), 0, "{arrow}");
        }
    }
}

/// Of the first mount nobody has seen anything: it goes.
#[test]
fn who_ends_before_he_has_served_leaves_no_mount() {
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    for arrow in ["cofs.mount.attached", "cofs.mount.served"] {
        let mut command = cofs(&["mount", &store, dir.to_str().unwrap()]);
        let output = command.env("COFS_FAILPOINT", arrow).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arrow}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("the process that was to serve"), "{arrow}: {said}");
        assert_eq!(mounts_on(&dir), 0, "{arrow}");
    }
}

/// All that is dead goes, should the supervisor be killed as well, when there are two dead mounts.
#[test]
fn two_dead_mounts_are_taken_away_together() {
    if !arrows().contains(&"cofs.replace.beneath") {
        return;
    }
    for line in [&["umount"][..], &["umount", "--lazy"], &["umount", "--dead"]] {
        let root = scratch();
        let store = format(&root);
        let (mut child, program) = foreground_with(&root, &store, "restart", &[]);
        let mounted = Mounted { store, dir: root.path().join("mount") };
        let first = path_str(&root, "first");
        let dies = format!("mkdir {first} 2>/dev/null || exec kill -9 $PPID");
        put_script(&program, &format!("{dies}\nexport COFS_FAILPOINT=cofs.replace.beneath"));
        kill(&mounted.dir);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(mounts_on(&mounted.dir), 2);
        run(&[line, &[mounted.dir.to_str().unwrap()]].concat());
        assert_eq!(mounts_on(&mounted.dir), 0, "{line:?}");
    }
}

/// Who unmounts what nobody serves does not want it back.
#[test]
fn what_is_unmounted_while_nobody_serves_stays_so() {
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let words = dir.to_str().unwrap();
    assert!(cofs(&["mount", "-d", &store, words]).status().unwrap().success());
    let supervisor = pid(&dir, "supervisor");
    // It cannot do anything meanwhile.
    kill_process(supervisor, Signal::STOP).unwrap();
    kill(&dir);
    wait_for("a dead mount", || rustix::fs::statfs(&dir).is_err());
    run(&["umount", words]);
    kill_process(supervisor, Signal::CONT).unwrap();
    wait_for("its end", || !is_alive(supervisor));
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(words));
    // In order: the volume is free.
    run(&["fsck", &store]);
}

/// Who unmounts takes the dead mount while the next one stands beneath it already, so that this comes to light, which nobody has asked for.
#[test]
fn what_is_unmounted_while_the_next_stands_beneath_it_stays_so() {
    if !arrows().contains(&"cofs.replace.beneath") {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let (mut child, program) = foreground_with(&root, &store, "restart", &[]);
    let mounted = Mounted { store, dir: root.path().join("mount") };
    put_script(&program, "export COFS_FAILPOINT=cofs.replace.beneath:1:stop");
    let supervisor = pid(&mounted.dir, "supervisor");
    let before = kill(&mounted.dir);
    wait_for("its end", || !is_alive(before));
    let mut next = None;
    wait_for("the next one, stopped", || {
        next = child_of(supervisor);
        mounts_on(&mounted.dir) == 2 && next.is_some_and(is_stopped)
    });
    rustix::mount::unmount(&mounted.dir, UnmountFlags::DETACH).unwrap();
    kill_process(next.unwrap(), Signal::CONT).unwrap();
    let mut ended = None;
    wait_for("the end of what watches over it, or another mount", || {
        ended = child.try_wait().unwrap();
        ended.is_some() || rustix::fs::statfs(&mounted.dir).is_ok_and(|found| found.f_type == FUSE)
    });
    assert!(ended.is_some_and(|status| status.success()), "mounted anew by {supervisor:?}: {ended:?}");
    assert_eq!(mounts_on(&mounted.dir), 0);
    run(&["fsck", &mounted.store]);
}

/// Success is told only of what is unmounted still when it is closed.
#[test]
fn what_is_mounted_anew_while_it_is_closed_is_told() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    for anew in [true, false] {
        let mut mounted = unwatched(&store, &dir);
        wait_for("its first answer", || rustix::fs::statfs(&dir).is_ok_and(|found| found.f_type == FUSE));
        // It cannot close the volume.
        mounted.signal(Signal::STOP);
        let mut command = cofs(&["umount", dir.to_str().unwrap()]);
        let unmounting = command.stderr(Stdio::piped()).spawn().unwrap();
        wait_for("the point's freedom", || mounts_on(&dir) == 0);
        if anew {
            let connection = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
            let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", connection.as_raw_fd());
            let data = std::ffi::CString::new(data).unwrap();
            rustix::mount::mount(&*store, &dir, "fuse.cofs", MountFlags::empty(), Some(&*data)).unwrap();
            let output = unmounting.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("is mounted there anew") && said.lines().count() == 1, "{said}");
            rustix::mount::unmount(&dir, UnmountFlags::DETACH).unwrap();
            mounted.signal(Signal::CONT);
        } else {
            mounted.signal(Signal::CONT);
            let output = unmounting.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        mounted.ends_well();
    }
}

/// However the mount point is named, and from wherever.
#[test]
fn a_mount_point_is_found_again_by_any_name() {
    let root = scratch();
    let store = format(&root);
    let real = root.path().join("mount");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink("mount", root.path().join("link")).unwrap();
    let link = path_str(&root, "link/");
    for (from, name) in [(root.path(), "./link"), (&real, "."), (&real, "../mount/"), (Path::new("/"), &link)]
    {
        let mut command = cofs(&["mount", "-d", &store, name]);
        assert!(command.current_dir(from).status().unwrap().success(), "{name}");
        let mounted = Mounted { store: store.clone(), dir: real.clone() };
        is_mounted_anew(&mounted);
        mounted.unmount();
    }
}

/// And where it is by then, should a directory above it have been renamed, though another stands in its old place.
#[test]
fn a_mount_whose_parent_was_renamed_is_mounted_anew_where_it_is() {
    for options in ["restart", "fsname=a name"] {
        let root = scratch();
        let store = format(&root);
        let at = |parent: &str| root.path().join(parent).join("mount");
        fs::create_dir_all(at("0")).unwrap();
        run(&["mount", "-d", &store, at("0").to_str().unwrap(), "-o", options]);
        let mut mounted = Mounted { store, dir: at("0") };
        for (from, to) in [("0", "1"), ("1", "2")] {
            mounted.dir = at(to);
            fs::rename(root.path().join(from), root.path().join(to)).unwrap();
            fs::create_dir_all(at(from)).unwrap();
            is_mounted_anew(&mounted);
            assert_eq!(mounts_on(&at(from)), 0, "{options}");
        }
        mounted.unmount();
    }
}

/// Sends the signal until it has ended: what it said, and the signal that it died of, if of that. (Again and again: where the tests run in the
/// background, SIGINT is for nobody until somebody heeds it.) Nothing is left mounted.
fn ended_with(child: &mut Child, signal: Signal, dir: &Path) -> (String, Option<i32>) {
    while child.try_wait().unwrap().is_none() {
        kill_process(Pid::from_child(child), signal).unwrap();
        sleep(Duration::from_millis(1));
    }
    let said = io::read_to_string(child.stderr.take().unwrap()).unwrap();
    let status = child.wait().unwrap();
    let by = status.signal();
    assert!(status.success() || by == Some(signal.as_raw()), "{status} after {signal:?}: {said}");
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(dir.to_str().unwrap()));
    (said, by)
}

/// Before it serves it dies of the signal, as one process would that does not heed it yet; later it unmounts. It says nothing.
#[test]
fn a_signal_at_any_time_ends_what_was_started_and_leaves_nothing() {
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let mut died = 0;
    for after in (0..30).map(Duration::from_millis) {
        for signal in [Signal::TERM, Signal::INT] {
            let mut command = cofs(&["mount", &store, dir.to_str().unwrap()]);
            let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
            sleep(after);
            let (said, by) = ended_with(&mut child, signal, &dir);
            assert_eq!(said, "", "{signal:?}, {after:?}");
            died += u32::from(by.is_some());
        }
    }
    assert!(died > 0, "all of them served first");
    run(&["fsck", &store]);
}

/// Whoever has crashed has left a dead mount, and the next one is on its way: it dies of the signal, or unmounts.
#[test]
fn a_signal_between_two_lives_ends_what_was_started_too() {
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let mut died = 0;
    for words in ["restart", "supervise"] {
        for after in (0..40).step_by(2).map(Duration::from_millis) {
            let mut command = cofs(&["mount", &store, dir.to_str().unwrap(), "-o", words]);
            command.stderr(Stdio::piped());
            let mut mounted = Foreground::start(command, &dir);
            let before = kill(&dir);
            // Seen by the one that watches: until then it would be an end while it closes.
            while is_alive(before) {
                sleep(Duration::from_millis(1));
            }
            sleep(after);
            let (_, by) = ended_with(&mut mounted.process, Signal::TERM, &dir);
            died += u32::from(by.is_some());
        }
    }
    assert!(died > 0, "all of them served first");
    run(&["fsck", &store]);
}

#[test]
fn whoever_is_not_to_be_watched_over_is_not() {
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    for (words, watched) in [("norestart", false), ("auto_unmount", false), ("restart", true), ("rw", true)] {
        let mut mounted =
            Foreground::start(cofs(&["mount", &store, dir.to_str().unwrap(), "-o", words]), &dir);
        let started = mounted.process.id();
        let told = |of: &str| status(&dir)["mount"][of].as_u64().and_then(|pid| u32::try_from(pid).ok());
        assert_eq!(told("supervisor"), watched.then_some(started), "{words}");
        assert_eq!(told("pid") == Some(started), !watched, "{words}");
        mounted.signal(Signal::TERM);
        mounted.ends_well();
    }
    for (words, watched) in [("norestart", false), ("auto_unmount", false), ("restart", true), ("rw", true)] {
        let mounted = Mounted::new(&root, &store, &["-o", words]);
        let supervisor = &status(&mounted.dir)["mount"]["supervisor"];
        assert_eq!(supervisor.is_number(), watched, "{words}");
        mounted.unmount();
    }
    let mounted = Mounted::new(&root, &store, &["-o", "norestart"]);
    let serves = kill(&mounted.dir);
    wait_for("its end", || !is_alive(serves));
    wait_for("a dead mount", || {
        let dead = [io::ErrorKind::NotConnected, io::ErrorKind::ConnectionAborted];
        fs::File::create(mounted.path("a")).is_err_and(|error| dead.contains(&error.kind()))
    });
    run(&["umount", mounted.dir.to_str().unwrap()]);
    for words in ["auto_unmount,restart", "supervise,norestart", "auto_unmount,supervise"] {
        let said = cofs(&["mount", &store, mounted.dir.to_str().unwrap(), "-o", words]).output().unwrap();
        assert_eq!(said.status.code(), Some(2), "{words}");
        for word in words.split(',') {
            assert!(String::from_utf8_lossy(&said.stderr).contains(word), "{words}");
        }
    }
}
