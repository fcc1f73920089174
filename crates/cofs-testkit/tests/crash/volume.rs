//! A volume under test: formatting, a daemon whose process id we know, its end, and `cofs fsck`.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

const MOUNT_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(60);

pub struct Volume {
    cofs: PathBuf,
    store: PathBuf,
    mount: PathBuf,
    options: String,
    log: fs::File,
    daemon: Option<Child>,
    /// The last that was started, and what it has started.
    processes: Vec<u32>,
    /// The longest that a mount after a crash took.
    pub mount_max: Duration,
}

impl Volume {
    /// A new volume in `$COFS_TEST_CRASH_DIR`, or `None`, said aloud.
    pub fn format(name: &str) -> Option<Self> {
        Self::format_with(name, "")
    }

    /// The same, mounted with further options.
    pub fn format_with(name: &str, more_options: &str) -> Option<Self> {
        let Some(dir) = std::env::var_os("COFS_TEST_CRASH_DIR") else {
            eprintln!("SKIPPED: COFS_TEST_CRASH_DIR is not set; ./test crash sets it");
            return None;
        };
        let dir = Path::new(&dir).join(name);
        let mount = dir.join("mount");
        fs::create_dir_all(&mount).unwrap();
        let cofs = std::env::var_os("COFS_TEST_BINARY").expect("COFS_TEST_BINARY").into();
        let options = std::env::var("COFS_TEST_MOUNT_OPTIONS").unwrap_or_else(|_| "allow_other".to_owned());
        let options = [&options, more_options].join(",").trim_end_matches(',').to_owned();
        let log = fs::File::create(dir.join("daemon.log")).unwrap();
        let volume = Self {
            cofs,
            store: dir.join("store"),
            mount,
            options,
            log,
            daemon: None,
            processes: Vec::new(),
            mount_max: Duration::ZERO,
        };
        let formatted = Command::new(&volume.cofs).arg("format").arg(&volume.store).output().unwrap();
        assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stderr));
        Some(volume)
    }

    pub fn top(&self) -> &Path {
        &self.mount
    }

    /// Mounts, with a failpoint armed if one is named; `false` if the daemon ended before it served.
    pub fn mount(&mut self, failpoint: Option<&str>) -> bool {
        assert!(self.daemon.is_none());
        let before = device(&self.mount);
        let started = Instant::now();
        let mut command = Command::new(&self.cofs);
        command.arg("mount").arg(&self.store).arg(&self.mount).args(["-o", &self.options]);
        // What is killed is what we start, and what it leaves is looked at before another serves.
        if !self.options.contains("supervise") {
            command.args(["-o", "norestart"]);
        }
        if let Some(name) = failpoint {
            command.env("COFS_FAILPOINT", name);
        }
        let log = || Stdio::from(self.log.try_clone().unwrap());
        let mut daemon = command.stdin(Stdio::null()).stdout(log()).stderr(log()).spawn().unwrap();
        loop {
            if device(&self.mount).is_some_and(|now| Some(now) != before) {
                self.processes = with_children(daemon.id());
                self.daemon = Some(daemon);
                self.mount_max = self.mount_max.max(started.elapsed());
                return true;
            }
            if let Some(status) = daemon.try_wait().unwrap() {
                assert!(
                    failpoint.is_some(),
                    "the daemon ended with {status} before it served; {}",
                    self.said()
                );
                self.unmount();
                return false;
            }
            assert!(started.elapsed() < MOUNT_LIMIT, "not mounted in time; {}", self.said());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What the daemon said last.
    fn said(&self) -> String {
        let log = fs::read_to_string(self.mount.parent().unwrap().join("daemon.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.daemon.as_mut().unwrap().kill().unwrap();
    }

    /// Whether the daemon has ended by itself.
    pub fn ended(&mut self) -> bool {
        self.daemon.as_mut().is_none_or(|daemon| daemon.try_wait().unwrap().is_some())
    }

    /// SIGTERM, and the end: with success, within a bound.
    pub fn terminate(&mut self) {
        let daemon = self.daemon.take().unwrap();
        let begun = Instant::now();
        kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
        let status = wait(daemon);
        assert!(status.success(), "{status}; {}", self.said());
        println!("ended within {:?}", begun.elapsed());
    }

    /// Out of the tree at once.
    pub fn unmount_lazily(&mut self) {
        let status = Command::new("umount").arg("-l").arg(&self.mount).status().unwrap();
        assert!(status.success() && !mounted(&self.mount));
        assert!(!self.ended(), "it has ended, and files are open");
    }

    /// That the daemon comes to its end by itself, if it has not yet, and leaves neither a mount nor a process.
    #[track_caller]
    pub fn has_ended_well(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let status = wait(daemon);
            assert!(status.success(), "{status}; {}", self.said());
        }
        assert!(!mounted(&self.mount), "the mount is still there");
        let begun = Instant::now();
        while let Some(process) =
            self.processes.iter().find(|pid| Path::new(&format!("/proc/{pid}")).exists())
        {
            assert!(begun.elapsed() < Duration::from_secs(2), "the process {process} is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// How the bytes of a file go that has an object.
    pub fn data_path(&self) -> &'static str {
        let has = |word| self.options.contains(word);
        let daemon = has("passthrough=off") || has("supervise") && !has("transport=uring");
        if daemon { "daemon" } else { "passthrough" }
    }

    /// Waits for a daemon that has been killed, and takes the dead mount away.
    pub fn bury(&mut self) {
        let daemon = self.daemon.take().unwrap();
        wait(daemon);
        self.unmount();
    }

    /// Unmounts as people do; whether the daemon ended well.
    pub fn stop(&mut self) -> bool {
        let daemon = self.daemon.take().unwrap();
        self.unmount();
        wait(daemon).success()
    }

    fn unmount(&self) {
        for _ in 0..200 {
            let status = Command::new("umount").arg(&self.mount).stderr(Stdio::null()).status().unwrap();
            if status.success() || !mounted(&self.mount) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let lazy = Command::new("umount").arg("-l").arg(&self.mount).status().unwrap();
        assert!(lazy.success() || !mounted(&self.mount));
    }

    /// `cofs fsck`: its exit status and what it said.
    pub fn fsck(&mut self, repair: bool) -> (i32, String) {
        let mut command = Command::new(&self.cofs);
        command.arg("fsck").arg(&self.store);
        if repair {
            command.arg("--repair");
        }
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        self.log.write_all(&said).unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    }

    /// What a crash may leave for `fsck` are objects that no inode names, and nothing else (`docs/design/orders.md`);
    /// a repair leaves nothing at all.
    #[track_caller]
    pub fn assert_only_orphans(&mut self) {
        let (status, said) = self.fsck(false);
        let other =
            said.lines().find(|line| line.starts_with("wrong:") && !line.contains("belongs to no inode"));
        assert!(status == 0 || status == 4 && other.is_none(), "fsck: {status}: {said}");
        if status != 0 {
            self.repair_fully();
        }
    }

    /// A volume that was mounted after a crash tidies up behind: objects that no inode names are gone, or go
    /// while it is mounted for a while.
    #[track_caller]
    pub fn assert_tidies_up(&mut self) {
        for _ in 0..10 {
            if self.fsck(false).0 == 0 {
                return;
            }
            self.mount(None);
            std::thread::sleep(Duration::from_millis(500));
            assert!(self.stop());
        }
        self.assert_clean();
    }

    /// Repairs (0: nothing to do, 1: done), after which nothing may be left.
    #[track_caller]
    fn repair_fully(&mut self) {
        let (status, said) = self.fsck(true);
        assert!(status == 0 || status == 1, "fsck --repair: {status}: {said}");
        self.assert_clean();
    }

    #[track_caller]
    pub fn assert_clean(&mut self) {
        let (status, said) = self.fsck(false);
        assert!(status == 0, "fsck: {status}: {said}");
    }
}

impl Volume {
    /// Its room is for others; one that failed is left to be looked at.
    pub fn discard(self) {
        fs::remove_dir_all(&self.store).unwrap();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // Dropped in the middle of a failure: leave nothing behind, and ask nothing more.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if mounted(&self.mount) {
            let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
        }
    }
}

fn with_children(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    std::iter::once(process).chain(children).collect()
}

fn device(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|meta| meta.dev())
}

/// Also true of a mount whose daemon is dead, which cannot be asked itself.
fn mounted(path: &Path) -> bool {
    let path = path.to_str().unwrap();
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(path))
}

fn wait(mut daemon: Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = daemon.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > END_LIMIT {
            daemon.kill().unwrap();
            panic!("the daemon had not ended {END_LIMIT:?} after its unmount");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
