//! Callers who wait and have a signal, on real mounts over both transports.

mod common;

use std::{
    fs::{self, File},
    io,
    os::fd::AsRawFd,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use cofs_fuse::{MountOptions, Transport};
use common::{Mounted, TRANSPORTS, eventually, gated, on_each};

extern "C" fn nothing(_: libc::c_int) {}

/// From now on SIGUSR1 interrupts what waits, and does no more.
fn survive_usr1() {
    // SAFETY: an all-zero `sigaction` is a valid one (no flags, an empty mask); the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

/// A thread that waits in `call`, and what sends SIGUSR1 to it.
fn waiting<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> (JoinHandle<T>, impl Fn()) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: it has no preconditions.
        tell.send(unsafe { libc::pthread_self() }).unwrap();
        call()
    });
    let target = told.recv().unwrap();
    // SAFETY: the thread is joined only after the last call, so that its number is its own.
    (thread, move || assert_eq!(unsafe { libc::pthread_kill(target, libc::SIGUSR1) }, 0))
}

type Lock = fn(&File, wait: bool) -> io::Result<()>;

fn outcome(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// fcntl(2), of the open file: what one of its locks keeps out may be in the same process.
fn record_lock(file: &File, wait: bool) -> io::Result<()> {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as _,
        l_whence: libc::SEEK_SET as _,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    let command = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    // SAFETY: the call reads the lock, which outlives it.
    outcome(unsafe { libc::fcntl(file.as_raw_fd(), command, &lock) })
}

fn file_lock(file: &File, wait: bool) -> io::Result<()> {
    let command = if wait { libc::LOCK_EX } else { libc::LOCK_EX | libc::LOCK_NB };
    // SAFETY: no memory is involved.
    outcome(unsafe { libc::flock(file.as_raw_fd(), command) })
}

#[test]
fn who_waits_for_a_lock_is_interrupted_by_a_signal() {
    survive_usr1();
    on_each(|on| {
        let open = || File::options().write(true).create(true).truncate(false).open(on.path("f")).unwrap();
        for lock in [record_lock as Lock, file_lock] {
            let holder = open();
            lock(&holder, false).unwrap();
            let other = open();
            assert_eq!(lock(&other, false).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let (waiter, signal) = waiting(move || lock(&other, true));
            eventually("he is interrupted", || {
                signal();
                waiter.is_finished()
            });
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), io::ErrorKind::Interrupted);
        }
    });
}

/// A mount whose syncs wait until they are let go, how many do, and what lets one go.
fn gated_mount(on: Transport, over_network: bool) -> Option<(Mounted, Arc<AtomicUsize>, mpsc::Sender<()>)> {
    let (fs, waiting, open) = gated();
    let options = MountOptions { over_network, ..MountOptions::default() };
    Some((Mounted::with(on, fs, options)?, waiting, open))
}

/// sync(1) of one file is an fsync(2) in a process of its own.
fn syncs(path: &Path) -> Child {
    Command::new("sync").arg(path).stderr(Stdio::null()).spawn().unwrap()
}

/// Forty callers of `command` wait and are killed, one after the other: more than there are places in a queue of io_uring.
fn killed_callers_leave_their_places(slow_looks: bool, command: impl Fn(&Mounted) -> Command) {
    const KILLED: usize = 40;
    for (transport, over_network) in TRANSPORTS.into_iter().flat_map(|on| [(on, false), (on, true)]) {
        let Some((on, waiting, open)) = gated_mount(transport, over_network) else { continue };
        File::create(on.path("f")).unwrap();
        on.fs.slow_looks.store(slow_looks, Ordering::SeqCst);
        for number in 1..=KILLED {
            let mut caller = command(&on).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            eventually("he waits", || waiting.load(Ordering::SeqCst) == number);
            // One that ends him by default is as good as SIGKILL.
            let signal = if number % 2 == 0 { libc::SIGTERM } else { libc::SIGKILL };
            // SAFETY: no memory is involved; the child has not been waited for, so that its number is its own.
            assert_eq!(unsafe { libc::kill(caller.id() as i32, signal) }, 0);
            eventually("he has gone", || caller.try_wait().unwrap().is_some());
        }
        on.fs.slow_looks.store(false, Ordering::SeqCst);
        for number in 0..100 {
            fs::write(on.path("other"), format!("{number}")).unwrap();
            fs::remove_file(on.path("other")).unwrap();
        }
        (0..KILLED).for_each(|_| open.send(()).unwrap());
        on.end();
    }
}

fn with_arguments(program: &str, arguments: &[&str], path: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).arg(path);
    command
}

#[test]
fn who_is_killed_need_not_wait_for_his_sync_and_leaves_his_place_to_others() {
    killed_callers_leave_their_places(false, |on| with_arguments("sync", &[], &on.path("f")));
}

#[test]
fn who_is_killed_need_not_wait_for_attributes() {
    killed_callers_leave_their_places(true, |on| with_arguments("stat", &["--cached=never"], &on.path("f")));
}

#[test]
fn who_is_killed_need_not_wait_for_the_space() {
    killed_callers_leave_their_places(true, |on| with_arguments("stat", &["-f"], on.dir.path()));
}

/// What could be dropped and asked anew is answered all the same, once it may.
#[test]
fn who_waits_for_attributes_gets_them() {
    for transport in TRANSPORTS {
        let Some((on, waiting, open)) = gated_mount(transport, false) else { continue };
        fs::write(on.path("f"), "four").unwrap();
        on.fs.slow_looks.store(true, Ordering::SeqCst);
        let looks = [("stat", ["--cached=never", "-c%s"]), ("stat", ["-f", "-c%S"])];
        for (program, arguments) in looks {
            let before = waiting.load(Ordering::SeqCst);
            let mut command = with_arguments(program, &arguments, &on.path("f"));
            let caller = command.stdout(Stdio::piped()).spawn().unwrap();
            eventually("he waits", || waiting.load(Ordering::SeqCst) > before);
            on.fs.slow_looks.store(false, Ordering::SeqCst);
            open.send(()).unwrap();
            let said = caller.wait_with_output().unwrap();
            let said = String::from_utf8(said.stdout).unwrap();
            assert!(["4\n", "4096\n"].contains(&said.as_str()), "{said}");
            on.fs.slow_looks.store(true, Ordering::SeqCst);
        }
        on.fs.slow_looks.store(false, Ordering::SeqCst);
        on.end();
    }
}

#[test]
fn a_sync_goes_on_for_a_caller_who_survives_his_signals() {
    survive_usr1();
    for transport in TRANSPORTS {
        let Some((on, waiting_below, open)) = gated_mount(transport, false) else { continue };
        let file = File::create(on.path("f")).unwrap();
        // `File::sync_all` would hide an EINTR.
        let (survivor, signal) = waiting(move || rustix::fs::fsync(&file));
        eventually("he waits", || waiting_below.load(Ordering::SeqCst) == 1);
        signal();
        // His request's word has been looked at when that of one who came later has.
        File::create(on.path("g")).unwrap();
        let mut killed = syncs(&on.path("g"));
        eventually("another waits", || waiting_below.load(Ordering::SeqCst) == 2);
        signal();
        killed.kill().unwrap();
        eventually("the other has gone", || killed.try_wait().unwrap().is_some());
        assert!(!survivor.is_finished());
        (0..2).for_each(|_| open.send(()).unwrap());
        survivor.join().unwrap().unwrap();
        on.end();
    }
}
