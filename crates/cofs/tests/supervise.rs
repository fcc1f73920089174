//! A mount that outlives the process which serves it (`-o supervise`), or is made anew (`-o restart`).

mod common;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::{
        fs::{FileExt, OpenOptionsExt, PermissionsExt},
        process::ExitStatusExt,
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    thread::sleep,
    time::{Duration, Instant},
};

use common::{Foreground, Mounted, cofs, format, path_str, run, scratch, uring_can_be_had, wait_for};
use rustix::{
    fs::{AtFlags, CWD, StatxFlags, statx},
    process::{Pid, Signal, kill_process, test_kill_process},
};
use serde_json::Value;
use tempfile::TempDir;

/// A life that is long enough not to count towards giving up, and to spare.
const A_LIFE: Duration = Duration::from_millis(300);

/// What is told of the mount; for a moment after its start it serves and does not know yet how.
fn status(dir: &Path) -> Value {
    let mut told = Value::Null;
    wait_for("the status of the mount", || {
        let text = run(&["status", dir.to_str().unwrap(), "--output", "json"]);
        told = serde_json::from_str(&text).unwrap();
        !told["mount"].is_null()
    });
    told
}

fn pid(dir: &Path, of: &str) -> Pid {
    let pid = &status(dir)["mount"][of];
    Pid::from_raw(i32::try_from(pid.as_i64().unwrap_or_else(|| panic!("{of}: {pid}"))).unwrap()).unwrap()
}

fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

/// Ends the process that serves, which has lived; what asks for anything now waits for the next.
fn kill(dir: &Path) -> Pid {
    let serves = pid(dir, "pid");
    sleep(A_LIFE);
    kill_process(serves, Signal::KILL).unwrap();
    serves
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Not what the kernel has kept.
fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

fn supervised(root: &TempDir) -> Mounted {
    let store = format(root);
    Mounted::new(root, &store, &["-o", "supervise"])
}

/// By another process: a child that another test has just forked would hold what we write, and nobody could run it meanwhile.
fn put_program(at: &str) {
    assert!(Command::new("cp").args([env!("CARGO_BIN_EXE_cofs"), at]).status().unwrap().success());
}

/// A foreground mount of a copy of the program, in a state of our own: (what was started, the copy's path).
fn foreground(root: &TempDir, store: &str, environment: &[(&str, &str)]) -> (Child, String) {
    foreground_with(root, store, "supervise", environment)
}

fn foreground_with(
    root: &TempDir,
    store: &str,
    options: &str,
    environment: &[(&str, &str)],
) -> (Child, String) {
    let program = path_str(root, "program");
    put_program(&program);
    let dir = root.path().join("mount");
    fs::create_dir_all(&dir).unwrap();
    let device = || fs::metadata(&dir).map(|found| std::os::unix::fs::MetadataExt::dev(&found));
    let before = device().unwrap();
    let mut command = Command::new(&program);
    command.args(["mount", store, dir.to_str().unwrap(), "-o", options]);
    command.env_remove("COFS_FAILPOINT").env_remove("NOTIFY_SOCKET").envs(environment.iter().copied());
    let child = command.spawn().unwrap();
    wait_for("the mount", || device().is_ok_and(|now| now != before));
    (child, program)
}

#[test]
fn open_files_of_every_kind_outlive_the_process_that_serves() {
    let root = scratch();
    let mounted = supervised(&root);
    let small = open(&mounted.path("small"));
    small.write_all_at(b"small", 0).unwrap();
    let large = open(&mounted.path("large"));
    large.write_all_at(&vec![b'l'; 3 << 20], 0).unwrap();
    let unlinked = open(&mounted.path("unlinked"));
    unlinked.write_all_at(&vec![b'u'; 1 << 20], 0).unwrap();
    fs::remove_file(mounted.path("unlinked")).unwrap();
    let removed_later = open(&mounted.path("removed later"));
    removed_later.write_all_at(&vec![b'r'; 1 << 20], 0).unwrap();
    let replaced_later = open(&mounted.path("replaced later"));
    replaced_later.write_all_at(b"replaced", 0).unwrap();
    let mut log = OpenOptions::new().append(true).create(true).open(mounted.path("log")).unwrap();
    log.write_all(b"0").unwrap();
    let nameless =
        OpenOptions::new().write(true).read(true).custom_flags(libc::O_TMPFILE).open(&mounted.dir).unwrap();
    nameless.write_all_at(b"nameless", 0).unwrap();
    fs::create_dir(mounted.path("directory")).unwrap();
    for number in 0..1000 {
        File::create(mounted.path("directory").join(format!("{number:04}"))).unwrap();
    }
    let mut listing = fs::read_dir(mounted.path("directory")).unwrap();
    let first = listing.next().unwrap().unwrap().file_name();
    for life in 1..=3_u8 {
        kill(&mounted.dir);
        if life == 2 {
            // As long as it takes until what nobody has open is collected.
            wait_for("the next life", || status(&mounted.dir)["mount"]["life"] == 2);
            sleep(Duration::from_secs(2));
        }
        small.write_all_at(&[life], 5 + u64::from(life)).unwrap();
        assert_eq!(read(&small, 0, 5), b"small");
        large.set_len((3 << 20) + u64::from(life)).unwrap();
        large.write_all_at(&[life], 2 << 20).unwrap();
        large.sync_all().unwrap();
        assert_eq!(read(&large, (2 << 20) - 1, 2), [b'l', life]);
        assert_eq!(large.metadata().unwrap().len(), (3 << 20) + u64::from(life));
        unlinked.write_all_at(&[life], u64::from(life)).unwrap();
        unlinked.set_len((1 << 20) - u64::from(life)).unwrap();
        assert_eq!(read(&unlinked, 0, 3)[0], b'u');
        assert_eq!(unlinked.metadata().unwrap().len(), (1 << 20) - u64::from(life));
        if life == 1 {
            fs::remove_file(mounted.path("removed later")).unwrap();
            fs::write(mounted.path("new"), "new").unwrap();
            fs::rename(mounted.path("new"), mounted.path("replaced later")).unwrap();
        }
        assert_eq!(read(&removed_later, (1 << 20) - 1, 1), b"r");
        assert_eq!(read(&replaced_later, 0, 8), b"replaced");
        log.write_all(life.to_string().as_bytes()).unwrap();
        assert_eq!(read(&nameless, 0, 8), b"nameless");
    }
    let names: std::collections::HashSet<_> =
        listing.map(|entry| entry.unwrap().file_name()).chain([first]).collect();
    assert_eq!(names.len(), 1000);
    assert_eq!(fs::read(mounted.path("log")).unwrap(), b"0123");
    assert_eq!(fs::read(mounted.path("replaced later")).unwrap(), b"new");
    let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&nameless));
    rustix::fs::linkat(CWD, descriptor, CWD, mounted.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read(mounted.path("named")).unwrap(), b"nameless");
    let told = status(&mounted.dir);
    assert_eq!((&told["mount"]["life"], &told["mount"]["survives"]), (&3.into(), &true.into()));
    for reason in ["transport_reason", "stacking_reason"] {
        let reason = told["mount"][reason].as_str().unwrap();
        assert!(reason.starts_with("supervise: "), "{reason}");
    }
    drop((small, large, unlinked, removed_later, replaced_later, log, nameless));
    let store = mounted.store.clone();
    mounted.unmount();
    let checked: Value = serde_json::from_str(&run(&["fsck", &store, "--output", "json"])).unwrap();
    assert_eq!(checked["open_for_writing"], 0);
}

#[test]
fn a_shared_mapping_outlives_the_process_that_serves() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    const BYTES: usize = 1 << 20;
    let root = scratch();
    let mounted = supervised(&root);
    let file = open(&mounted.path("mapped"));
    file.write_all_at(&vec![b'm'; BYTES], 0).unwrap();
    // SAFETY: the mapping is used within its length and unmapped below.
    let at = unsafe {
        mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
    };
    let at = at.unwrap().cast::<u8>();
    // SAFETY: within the mapping, as all below.
    unsafe { at.write_volatile(b'1') };
    kill(&mounted.dir);
    // SAFETY: as above; this page has not been brought in before.
    let (there, before) = unsafe {
        at.add(BYTES / 2).write_volatile(b'2');
        (at.add(BYTES - 1).read_volatile(), at.read_volatile())
    };
    assert_eq!((there, before), (b'm', b'1'));
    // SAFETY: the mapping and its length.
    unsafe { msync(at.cast(), BYTES, MsyncFlags::SYNC) }.unwrap();
    kill(&mounted.dir);
    let now = fs::read(mounted.path("mapped")).unwrap();
    assert_eq!((now[0], now[1], now[BYTES / 2], now.len()), (b'1', b'm', b'2', BYTES));
    // SAFETY: nobody uses it any more.
    unsafe { munmap(at.cast(), BYTES) }.unwrap();
}

/// The process ends between the commit and the answer: the next one must say that it was done, once.
#[test]
fn what_was_done_and_not_told_is_told_by_the_next() {
    type Act = fn(&Path) -> io::Result<()>;
    let acts: [(&str, Act); 6] = [
        ("make", |at| fs::create_dir(at.join("new")).and_then(|()| fs::remove_dir(at.join("new")))),
        ("link", |at| {
            fs::hard_link(at.join("a"), at.join("linked"))?;
            assert_eq!(fs::read(at.join("linked"))?, b"a");
            Ok(())
        }),
        ("create", |at| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(at.join("created"))?;
            file.write_all(b"created")?;
            assert_eq!(fs::read(at.join("created"))?, b"created");
            Ok(())
        }),
        ("unlink", |at| {
            fs::remove_file(at.join("a"))?;
            assert!(!at.join("a").exists());
            Ok(())
        }),
        ("rmdir", |at| fs::remove_dir(at.join("empty"))),
        ("rename", |at| {
            fs::rename(at.join("a"), at.join("b"))?;
            assert_eq!((fs::read(at.join("b"))?, at.join("a").exists()), (b"a".to_vec(), false));
            Ok(())
        }),
    ];
    for (name, act) in acts {
        let root = scratch();
        let store = format(&root);
        let before = Mounted::new(&root, &store, &[]);
        fs::write(before.path("a"), "a").unwrap();
        fs::write(before.path("b"), "b").unwrap();
        fs::create_dir(before.path("empty")).unwrap();
        before.unmount();
        let failpoint = format!("fs.{name}.committed:1");
        let (mut child, _) = foreground(&root, &store, &[("COFS_FAILPOINT", &failpoint)]);
        let mounted = Mounted { store, dir: root.path().join("mount") };
        // Of all that is asked for first, the commits are those of `act`.
        act(&mounted.dir).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(status(&mounted.dir)["mount"]["life"].as_i64() > Some(0), "{name}: nobody has died");
        mounted.unmount();
        assert!(child.wait().unwrap().success(), "{name}");
    }
}

/// O_TMPFILE cannot be told from a second one, so that each process dies of it: at last it is refused, and the mount lives.
#[test]
fn a_request_that_its_servants_die_of_is_refused() {
    let root = scratch();
    let store = format(&root);
    let (mut child, _) = foreground(&root, &store, &[("COFS_FAILPOINT", "fs.tmpfile.committed:1")]);
    let mounted = Mounted { store, dir: root.path().join("mount") };
    let error =
        OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(&mounted.dir).expect_err("served");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    fs::write(mounted.path("a"), "a").unwrap();
    assert_eq!(fs::read(mounted.path("a")).unwrap(), b"a");
    mounted.unmount();
    assert!(child.wait().unwrap().success());
}

#[test]
fn who_dies_again_and_again_is_given_up_and_no_mount_stays() {
    let root = scratch();
    let store = format(&root);
    let (mut child, program) = foreground(&root, &store, &[]);
    let dir = root.path().join("mount");
    fs::write(dir.join("kept"), "kept").unwrap();
    let serves = pid(&dir, "pid");
    // Neither can one be started that is not there.
    fs::remove_file(&program).unwrap();
    kill_process(serves, Signal::KILL).unwrap();
    sleep(Duration::from_millis(150));
    let script = path_str(&root, "script");
    fs::write(&script, "#!/bin/sh\nkill -9 $$\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&script, &program).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(dir.to_str().unwrap()));
    let again = Mounted::new(&root, &store, &[]);
    assert_eq!(fs::read(again.path("kept")).unwrap(), b"kept");
    again.unmount();
}

#[test]
fn an_end_in_order_leaves_no_process_whoever_is_asked_for_it() {
    let asks: [(&str, fn(&Mounted)); 3] = [
        ("umount", |mounted| drop(run(&["umount", mounted.dir.to_str().unwrap()]))),
        ("SIGTERM", |mounted| kill_process(pid(&mounted.dir, "supervisor"), Signal::TERM).unwrap()),
        ("no supervisor", |mounted| kill_process(pid(&mounted.dir, "supervisor"), Signal::KILL).unwrap()),
    ];
    for (name, ask) in asks {
        let root = scratch();
        let mounted = supervised(&root);
        kill(&mounted.dir);
        let (serves, watches) = (pid(&mounted.dir, "pid"), pid(&mounted.dir, "supervisor"));
        ask(&mounted);
        wait_for(name, || !is_alive(serves) && !is_alive(watches));
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!table.contains(mounted.dir.to_str().unwrap()), "{name}");
        run(&["fsck", &mounted.store]);
    }
}

#[test]
fn an_upgrade_goes_on_with_the_program_that_stands_there_now() {
    let root = scratch();
    let store = format(&root);
    let (mut child, program) = foreground(&root, &store, &[]);
    let mounted = Mounted { store, dir: root.path().join("mount") };
    let file = open(&mounted.path("open"));
    file.write_all_at(b"before", 0).unwrap();
    let serves = pid(&mounted.dir, "pid");
    fs::rename(&program, path_str(&root, "old")).unwrap();
    put_program(&program);
    kill_process(Pid::from_child(&child), Signal::USR2).unwrap();
    wait_for("the next", || pid(&mounted.dir, "pid") != serves);
    let now = pid(&mounted.dir, "pid");
    let runs = fs::read_link(format!("/proc/{}/exe", now.as_raw_nonzero())).unwrap();
    assert_eq!(runs, Path::new(&program));
    assert_eq!(read(&file, 0, 6), b"before");
    drop(file);
    mounted.unmount();
    assert!(child.wait().unwrap().success());
}

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
        &["cofs.replace.taken_away"]
    };
    [&["cofs.replace.told"], between, &["cofs.mount.attached", "cofs.mount.served"]].concat()
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

/// Ended, and by which signal, if by one.
fn ends_by(child: &mut Child) -> Option<i32> {
    let status = child.wait().unwrap();
    assert!(status.success() || status.signal().is_some(), "{status}");
    status.signal()
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
            // Again and again: where the tests run in the background, SIGINT is for nobody until somebody heeds it.
            while child.try_wait().unwrap().is_none() {
                kill_process(Pid::from_child(&child), signal).unwrap();
                sleep(Duration::from_millis(1));
            }
            let said = io::read_to_string(child.stderr.take().unwrap()).unwrap();
            let by = ends_by(&mut child);
            assert!(by.is_none_or(|by| by == signal.as_raw()), "{by:?} after {signal:?}, {after:?}");
            assert_eq!(said, "", "{signal:?}, {after:?}");
            died += u32::from(by.is_some());
            assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(dir.to_str().unwrap()));
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

#[test]
fn one_that_never_serves_says_why_as_without_a_supervisor() {
    let root = scratch();
    let store = format(&root);
    let output = cofs(&["mount", &store, "/dev/null", "-o", "supervise"]).output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("not a directory"));
}
