//! End to end: signals end a mount, wherever it is by then and whatever it is doing.

mod common;

use std::{
    fs,
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use common::{
    Foreground, Mounted, Small, cofs, foreground, format, is_mounted, lives, run, scratch, skip, unmount,
    wait_for,
};
use rustix::{
    fs::{Mode, OFlags},
    mount::UnmountFlags,
    process::{Pid, Signal, kill_process},
};

#[test]
fn a_signal_unmounts_and_ends_with_success() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    for which in [Signal::TERM, Signal::INT] {
        let mut child = foreground(&store, &dir);
        fs::write(dir.join("file"), "bytes").unwrap();
        child.signal(which);
        child.ends_well();
        assert!(!is_mounted(&dir));
    }
    let mut child = foreground(&store, &dir);
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"bytes");
    child.signal(Signal::TERM);
    child.ends_well();
}

/// timeout(1) tells the process and its group; a terminal and its shell do the same.
/// Who is started in the background is held before he serves; where he was quicker, it is tried again.
#[test]
fn a_signal_before_it_serves_ends_a_mount_in_the_background_too() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted { store: store.clone(), dir: root.path().join("mount") };
    fs::create_dir(&mounted.dir).unwrap();
    for options in ["restart", "norestart"] {
        let mut ended = None;
        wait_for("a mount that is held before it serves", || {
            let line = ["mount", "-d", "-o", options, &store, mounted.dir.to_str().unwrap()];
            let mut front = cofs(&line).spawn().unwrap();
            let mut child = None;
            while child.is_none() && front.try_wait().unwrap().is_none() {
                child = lives::child_of(Pid::from_child(&front));
            }
            for (process, signal) in
                [(child, Signal::STOP), (Some(Pid::from_child(&front)), Signal::TERM), (child, Signal::CONT)]
            {
                let _ = process.map(|process| kill_process(process, signal));
            }
            let status = front.wait().unwrap();
            if status.success() {
                unmount(&mounted.dir);
            } else {
                ended = Some((status.signal(), child.is_some_and(lives::is_alive)));
            }
            !status.success()
        });
        assert_eq!(ended, Some((Some(Signal::TERM.as_raw()), false)), "{options}");
        assert!(!is_mounted(&mounted.dir), "{options}");
        run(&["gc", &store]);
    }
}

#[test]
fn signals_that_come_while_it_unmounts_are_no_trouble() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    let mut command = cofs(&["mount", &store, dir.to_str().unwrap()]);
    command.stderr(Stdio::piped());
    let mut child = Foreground::start(command, &dir);
    fs::write(dir.join("file"), "bytes").unwrap();
    while child.process.try_wait().unwrap().is_none() {
        child.signal(Signal::TERM);
    }
    child.ends_well();
    let mut said = String::new();
    child.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.is_empty(), "{:?}", said.lines().next());
}

/// A service manager tells all of a service's processes, and one of them the other. What is taken down is the volume's mount, once.
#[test]
fn signals_that_come_twice_leave_what_lies_below() {
    if skip() || !rustix::process::geteuid().is_root() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let below = Small::mount(&root);
    let mounts = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.matches(&format!(" {} ", below.0.display())).count()
    };
    for options in ["norestart", "restart"] {
        let mut command = cofs(&["mount", &store, below.0.to_str().unwrap(), "-o", options]);
        let mut process = command.spawn().unwrap();
        wait_for("the mount", || mounts() == 2);
        while process.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        }
        assert!(process.wait().unwrap().success(), "{options}");
        assert_eq!(mounts(), 1, "{options}");
    }
}

#[test]
fn a_signal_ends_the_mount_even_while_a_file_is_open() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    let mut child = foreground(&store, &dir);
    let mut open = fs::File::create(dir.join("file")).unwrap();
    open.write_all(b"bytes").unwrap();
    child.signal(Signal::TERM);
    child.ends_well();
    drop(open);

    let mounted = Mounted::new(&root, &store, &[]);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"bytes");
    mounted.unmount();
}

/// Of such a mount nobody knows where it is.
#[test]
fn a_signal_ends_a_mount_that_was_unmounted_lazily_before_it_was_served() {
    if skip() || !rustix::process::geteuid().is_root() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    fs::create_dir(&dir).unwrap();
    let table = lives::MountTable::watch();
    for options in ["norestart", "restart"] {
        let line = cofs(&["mount", &store, dir.to_str().unwrap(), "-o", options]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{}; exec \"$0\" \"$@\"", table.gives_way)]);
        let mut process = command.arg(line.get_program()).args(line.get_args()).spawn().unwrap();
        while !is_mounted(&dir) {
            table.changes();
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let in_use = rustix::fs::open(&dir, flags, Mode::empty()).unwrap();
        rustix::mount::unmount(&dir, UnmountFlags::DETACH).unwrap();
        rustix::fs::fstatfs(&in_use).unwrap();
        // It serves, but may not be all ears yet: what comes before is heeded then.
        kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        wait_for("its end", || process.try_wait().unwrap().is_some());
        drop(in_use);
        run(&["fsck", &store]);
    }
}

/// Wherever it has been moved by then, and whoever serves it by then.
#[test]
fn a_signal_ends_a_mount_whose_parent_was_renamed() {
    if skip() {
        return;
    }
    for options in ["norestart", "restart", "supervise"] {
        let root = scratch();
        let store = format(&root);
        let (before, after) = (root.path().join("before"), root.path().join("after"));
        let dir = before.join("mount");
        let line = ["mount", &store, dir.to_str().unwrap(), "-o", options];
        let mut child = Foreground::start(cofs(&line), &dir);
        let mounted = Mounted { store, dir: after.join("mount") };
        // What begins to serve may not have seen where yet.
        lives::status(&dir);
        fs::rename(&before, &after).unwrap();
        if options == "supervise" {
            lives::kill(&mounted.dir);
            wait_for("the next life", || lives::status(&mounted.dir)["mount"]["life"] == 1);
        }
        child.signal(Signal::TERM);
        wait_for("its end", || child.process.try_wait().unwrap().is_some());
        child.ends_well();
        assert!(!is_mounted(&mounted.dir), "{options}");
    }
}

/// Who still uses what was unmounted lazily, or has it in a mount namespace of his own, is cut off, too.
#[test]
fn a_signal_ends_a_mount_that_is_not_to_be_seen() {
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: where fusectl is not mounted it takes root");
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    for elsewhere in [false, true] {
        let mut child = foreground(&store, &dir);
        let mut open = fs::File::create(dir.join("file")).unwrap();
        open.write_all(b"bytes").unwrap();
        let mut sleeper = None;
        if elsewhere {
            drop(open);
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sleep", "1000"]);
            sleeper = Some(command.spawn().unwrap());
            let process = sleeper.as_ref().unwrap().id();
            wait_for("a copy", || fs::read(format!("/proc/{process}/comm")).unwrap() == b"sleep\n");
        } else {
            run(&["umount", "--lazy", dir.to_str().unwrap()]);
        }
        child.signal(Signal::TERM);
        wait_for("its end", || child.process.try_wait().unwrap().is_some());
        child.ends_well();
        if let Some(mut sleeper) = sleeper {
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
        }
        let mounted = Mounted::new(&root, &store, &[]);
        assert_eq!(fs::read(mounted.path("file")).unwrap(), b"bytes");
        mounted.unmount();
    }
}
