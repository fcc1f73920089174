//! A mount that only root may enter: the kernel checks no permissions there, and nothing is lost by that.

mod common;

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use common::{Mounted, format, scratch, skip};
use rustix::fs::{Access, access};

fn skip_all() -> bool {
    let skip = skip() || !rustix::process::geteuid().is_root();
    if skip {
        eprintln!("skipped: only root has such mounts");
    }
    skip
}

fn kernel_checks(mounted: &Mounted) -> bool {
    let output = Command::new("findmnt").args(["-n", "-o", "OPTIONS"]).arg(&mounted.dir).output().unwrap();
    String::from_utf8(output.stdout).unwrap().contains("default_permissions")
}

/// Runs `work` with the rights of another user, but as a process of root's: as user-level file servers do.
#[allow(unsafe_code, reason = "a call of the kernel that nobody wraps")]
fn for_another<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let as_another = || {
        // SAFETY: changes this thread's credentials only, and touches no memory.
        unsafe { libc::setfsuid(40_001) };
        work()
    };
    std::thread::scope(|scope| scope.spawn(as_another).join().unwrap())
}

fn refused<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[test]
fn the_kernel_checks_where_others_may_enter_or_it_is_asked_to() {
    if skip_all() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    for (options, checks) in
        [(&[][..], false), (&["-o", "allow_other"], true), (&["-o", "default_permissions"], true)]
    {
        let mounted = Mounted::new(&root, &store, options);
        assert_eq!(kernel_checks(&mounted), checks, "{options:?}");
        mounted.unmount();
    }
}

#[test]
fn who_acts_for_another_is_refused_all_but_what_is_open() {
    if skip_all() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    let (secret, new) = (mounted.path("secret"), mounted.path("new"));
    fs::write(&secret, "bytes").unwrap();
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(fs::read(&secret).unwrap(), b"bytes", "its names are cached now");
    let mut open = File::options().read(true).append(true).open(&secret).unwrap();
    for_another(|| {
        assert!(refused(fs::read(&secret)));
        assert!(refused(fs::write(&secret, "other")));
        assert!(refused(fs::write(&new, "other")));
        assert!(refused(fs::remove_file(&secret)));
        assert!(refused(fs::rename(&secret, &new)));
        assert!(refused(fs::set_permissions(&secret, PermissionsExt::from_mode(0o666))));
        assert!(refused(fs::read_dir(&mounted.dir).map(drop)));
        let mut bytes = String::new();
        open.read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "bytes");
        open.write_all(b" and more").unwrap();
        open.sync_all().unwrap();
    });
    drop(open);
    assert_eq!(fs::read(&secret).unwrap(), b"bytes and more");
    mounted.unmount();
    let mounted = Mounted::new(&root, &store, &["-o", "default_permissions"]);
    for_another(|| assert!(refused(fs::read(&secret)), "by the kernel"));
    mounted.unmount();
}

#[test]
fn modes_and_lists_are_as_they_were_set() {
    if skip_all() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    let (script, dir) = (mounted.path("script"), mounted.path("dir"));
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let runs = || Command::new(&script).status().is_ok_and(|status| status.success());
    assert!(access(&script, Access::READ_OK | Access::WRITE_OK).is_ok());
    assert!(access(&script, Access::EXEC_OK).is_err() && !runs(), "nobody may run it, not even root");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o750)).unwrap();
    assert!(access(&script, Access::EXEC_OK).is_ok() && runs());

    let set = |words: &[&str], path| {
        assert!(Command::new("setfacl").args(words).arg(path).status().unwrap().success());
    };
    assert_eq!(mode(&script), 0o750);
    set(&["-m", "u:40001:rwx"], &script);
    assert_eq!(mode(&script), 0o770, "the group's bits are the mask");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o700)).unwrap();
    let list = Command::new("getfacl").args(["-cEp"]).arg(&script).output().unwrap();
    assert!(String::from_utf8(list.stdout).unwrap().contains("mask::---"));

    fs::create_dir(&dir).unwrap();
    set(&["-d", "-m", "u::rwx,g::rwx,o::-"], &dir);
    let below = dir.join("below");
    assert!(Command::new("sh").args(["-c", "umask 077; : > \"$0\""]).arg(&below).status().unwrap().success());
    assert_eq!(mode(&below), 0o660, "a default list takes the umask's place");
    mounted.unmount();
}
