//! A mount that outlives the process which serves it (`-o supervise`).

mod common;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    process::Child,
    thread::sleep,
    time::Duration,
};

use common::{
    Mounted, cofs, format,
    lives::{foreground_with, is_alive, kill, pid, put_program, status},
    path_str, run, scratch, wait_for,
};
use rustix::{
    fs::{AtFlags, CWD},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;
use tempfile::TempDir;

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

/// A foreground mount of a copy of the program, in a state of our own: (what was started, the copy's path).
fn foreground(root: &TempDir, store: &str, environment: &[(&str, &str)]) -> (Child, String) {
    foreground_with(root, store, "supervise", environment)
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
    let script = path_str(&root, "script");
    fs::write(&script, "#!/bin/sh\nkill -9 $$\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&script, &program).unwrap();
    kill_process(serves, Signal::KILL).unwrap();
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

#[test]
fn what_is_no_cofs_replaces_nothing_and_where_there_is_none_the_next_is_what_runs() {
    let root = scratch();
    let store = format(&root);
    let (mut child, program) = foreground(&root, &store, &[]);
    let mounted = Mounted { store, dir: root.path().join("mount") };
    let file = open(&mounted.path("open"));
    file.write_all_at(b"before", 0).unwrap();
    let (serves, old) = (pid(&mounted.dir, "pid"), path_str(&root, "old"));
    fs::rename(&program, &old).unwrap();
    for another in [None, Some("/bin/false")] {
        if let Some(another) = another {
            std::os::unix::fs::symlink(another, &program).unwrap();
        }
        kill_process(Pid::from_child(&child), Signal::USR2).unwrap();
        sleep(Duration::from_millis(500));
        assert_eq!((read(&file, 0, 6), pid(&mounted.dir, "pid")), (b"before".to_vec(), serves));
    }
    fs::remove_file(&program).unwrap();
    kill(&mounted.dir);
    wait_for("the next", || status(&mounted.dir)["mount"]["life"] == 1);
    let now = pid(&mounted.dir, "pid");
    let runs = fs::read_link(format!("/proc/{}/exe", now.as_raw_nonzero())).unwrap();
    assert_eq!((read(&file, 0, 6), runs), (b"before".to_vec(), old.into()));
    drop(file);
    mounted.unmount();
    assert!(child.wait().unwrap().success());
}

#[test]
fn one_that_never_serves_says_why_as_without_a_supervisor() {
    let root = scratch();
    let store = format(&root);
    let output = cofs(&["mount", &store, "/dev/null", "-o", "supervise"]).output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("not a directory"));
}
