//! What a sandbox takes away: `/dev/fuse`, io_uring. Each has its own words, or a fallback that says why.
//!
//! A thread has its own name space of mounts and its own filter of system calls, and so have the threads that it starts.

mod common;

use std::{path::Path, process::Command, sync::Arc};

use cofs_fuse::{Mount, MountError, MountOptions, Transport, Unmount};
use common::{can_mount, fs::NullFs, until_unused, uring_can_be_had};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};

/// What `test` comes to on a thread that sees mounts of its own; `None` where we may not have any.
fn apart<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = std::thread::spawn(move || {
        // SAFETY: the call touches no memory; the thread shares its working directory with nobody afterwards.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            eprintln!("SKIPPED: a name space of mounts needs root");
            return None;
        }
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        Some(test())
    });
    thread.join().unwrap()
}

fn try_mount(point: &Path, transport: Transport) -> Result<Mount, MountError> {
    let options = MountOptions { transport, ..MountOptions::default() };
    cofs_fuse::mount(Arc::new(NullFs::new(false, || ())), point, &options)
}

/// The refusal where `spoil` has been done to `/dev`; given a directory to do it with.
fn refusal(spoil: impl FnOnce(&Path) + Send + 'static) -> Option<String> {
    apart(|| {
        let (scratch, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        spoil(scratch.path());
        let refused = try_mount(point.path(), Transport::Auto).unwrap_err();
        let beforehand = cofs_fuse::check(point.path(), &MountOptions::default()).unwrap_err();
        assert_eq!(refused.to_string(), beforehand.to_string());
        rustix::mount::unmount("/dev/fuse", rustix::mount::UnmountFlags::DETACH)
            .or_else(|_| rustix::mount::unmount("/dev", rustix::mount::UnmountFlags::DETACH))
            .unwrap();
        let _ = rustix::mount::unmount(scratch.path(), rustix::mount::UnmountFlags::DETACH);
        refused.to_string()
    })
}

#[test]
fn a_device_that_is_not_there_is_named() {
    if let Some(said) = can_mount().then(|| refusal(|empty| mount_bind(empty, "/dev").unwrap())).flatten() {
        assert!(said.contains("/dev/fuse does not exist") && said.contains("modprobe fuse"), "{said}");
    }
}

#[test]
fn what_is_not_the_device_is_not_taken_for_it() {
    let plain = |scratch: &Path| {
        let file = scratch.join("plain");
        std::fs::write(&file, "").unwrap();
        mount_bind(&file, "/dev/fuse").unwrap();
    };
    // As containers mask files.
    let masked = |_: &Path| mount_bind("/dev/null", "/dev/fuse").unwrap();
    let spoils: [Box<dyn FnOnce(&Path) + Send>; 2] = [Box::new(plain), Box::new(masked)];
    for spoil in spoils {
        if let Some(said) = can_mount().then(|| refusal(spoil)).flatten() {
            assert!(said.contains("is not the FUSE device") && said.contains("mknod"), "{said}");
        }
    }
}

#[test]
fn a_device_that_may_not_be_opened_is_named() {
    // Root is let in by its capabilities whatever the mode; not so where there are no devices.
    let closed = |scratch: &Path| {
        mount("none", scratch, "tmpfs", MountFlags::NODEV, None).unwrap();
        let device = scratch.join("fuse");
        assert!(Command::new("mknod").arg(&device).args(["c", "10", "229"]).status().unwrap().success());
        mount_bind(&device, "/dev/fuse").unwrap();
    };
    if let Some(said) = can_mount().then(|| refusal(closed)).flatten() {
        assert!(said.contains("/dev/fuse may not be opened"), "{said}");
    }
}

/// From now on this thread, and those that it starts, are told EPERM by io_uring_setup(2).
fn block_io_uring() {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD, 0, 0, 0), // the call's number: the first field of `seccomp_data`
        step(IS, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the filter, which outlives the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

#[test]
fn where_io_uring_is_blocked_the_device_serves_and_the_report_says_why() {
    if !can_mount() {
        return;
    }
    let expected: &[&str] =
        if uring_can_be_had() { &["sandbox"] } else { &["enable_uring is off", "no FUSE over io_uring"] };
    for transport in [Transport::Auto, Transport::Uring] {
        let sandboxed = std::thread::spawn(move || {
            block_io_uring();
            let point = tempfile::tempdir().unwrap();
            let mount = try_mount(point.path(), transport).unwrap();
            let report = mount.report().clone();
            std::fs::write(point.path().join("f"), "served").unwrap();
            until_unused(|| mount.unmount(Unmount::IfUnused));
            mount.join().unwrap();
            report
        });
        let report = sandboxed.join().unwrap();
        assert_eq!(report.transport, Transport::DevFuse);
        assert!(expected.iter().any(|words| report.reason.contains(words)), "{}", report.reason);
    }
}
