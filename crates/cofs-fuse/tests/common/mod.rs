//! The null file system mounted for a test, on either transport.

#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../../examples/null/fs.rs"]
pub mod fs;
#[path = "../../examples/null/node.rs"]
pub mod node;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use cofs_fuse::{Mount, MountOptions, Transport, Unmount};
use fs::NullFs;
use parking_lot::Mutex;

pub const TRANSPORTS: [Transport; 2] = [Transport::DevFuse, Transport::Uring];

/// The null file system whose syncs wait at a gate, how many wait, and what lets one go (all, when it is dropped).
pub fn gated() -> (NullFs, Arc<AtomicUsize>, mpsc::Sender<()>) {
    let (open, gate) = mpsc::channel::<()>();
    let (gate, waiting) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let waits = waiting.clone();
    let fs = NullFs::new(false, move || {
        waits.fetch_add(1, Ordering::SeqCst);
        let _ = gate.lock().recv();
    });
    (fs, waiting, open)
}

pub struct Mounted {
    pub fs: Arc<NullFs>,
    pub mount: Option<Mount>,
    pub dir: tempfile::TempDir,
}

/// Whether this machine can mount at all; says loudly when not.
pub fn can_mount() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        eprintln!("SKIPPED: there is no /dev/fuse on this machine");
    }
    there
}

const URING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Has the kernel give io_uring to mounts made from now on, which it does not by default; `false` where it has none to give, or
/// we may not have it.
pub fn uring_can_be_had() -> bool {
    let _ = std::fs::write(URING_SWITCH, "Y");
    std::fs::read_to_string(URING_SWITCH).is_ok_and(|value| value.trim() == "Y")
}

impl Mounted {
    /// `None`, loudly, where there is no `/dev/fuse`, or no io_uring in the kernel. Panics where there is, and another transport serves all the same.
    pub fn new(transport: Transport, fs: NullFs) -> Option<Self> {
        Self::with(transport, fs, MountOptions::default())
    }

    /// As [`Mounted::new`], with further options.
    pub fn with(transport: Transport, fs: NullFs, options: MountOptions) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        if transport == Transport::Uring && !uring_can_be_had() {
            eprintln!("SKIPPED over {transport:?}: {URING_SWITCH} is not there, or may not be switched on");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let fs = Arc::new(fs);
        let options = MountOptions { transport, allow_other: true, ..options };
        let mount = cofs_fuse::mount(fs.clone(), dir.path(), &options).unwrap();
        let report = mount.report();
        assert_eq!(report.transport, transport, "{}", report.reason);
        Some(Self { fs, mount: Some(mount), dir })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    /// Unmounts, waits for the end, and checks that the file system was detached once.
    pub fn end(mut self) {
        let mount = self.mount.take().unwrap();
        until_unused(|| mount.unmount(Unmount::IfUnused));
        mount.join().unwrap();
        assert_eq!(self.fs.detached.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}

/// Runs a test once over each transport, on a file system whose syncs do nothing.
pub fn on_each(test: impl Fn(&Mounted)) {
    for transport in TRANSPORTS {
        if let Some(mounted) = Mounted::new(transport, NullFs::new(false, || ())) {
            test(&mounted);
            mounted.end();
        }
    }
}

/// Unmounts what this test uses no more. A child that another test has just forked, and that is not yet another
/// program, may hold it open for a moment, as it does all of this process.
pub fn until_unused(unmount: impl Fn() -> io::Result<()>) {
    eventually("nobody uses it", || match unmount() {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => false,
        Err(error) => panic!("unmount: {error}"),
    });
}

/// Waits for what happens soon; fails after a minute.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if happened() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("not within a minute: {what}");
}
