//! The machine: user-mode Linux, whose root is this machine's tree, read-only, and whose disk is an image.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// The machine's first process: mounts the disk and the volume on it, and works until the power goes.
const INIT: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev
insmod "/usr/lib/uml/modules/$(uname -r)/kernel/fs/fuse/fuse.ko"
mount -t tmpfs tmp /mnt && mkdir /mnt/disk /mnt/volume && mount /dev/ubda /mnt/disk &&
@COFS@ mount -d /mnt/disk/store /mnt/volume &&
COFS_TEST_SEED=@SEED@ COFS_TEST_DIR=/mnt/volume @WORK@ --exact rounds::work_until_the_power_goes --ignored --nocapture
echo "ended $?"
sleep 1000
"#;

pub struct Machine {
    process: Child,
    lines: Receiver<String>,
}

impl Machine {
    /// Boots a machine that works on the volume in `disk`.
    pub fn boot(dir: &Path, disk: &Path, cofs: &Path, seed: u64) -> Self {
        let init = dir.join("init");
        let work = std::env::current_exe().unwrap();
        let text = INIT
            .replace("@COFS@", cofs.to_str().unwrap())
            .replace("@WORK@", work.to_str().unwrap())
            .replace("@SEED@", &seed.to_string());
        fs::write(&init, text).unwrap();
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).unwrap();
        let mut process = Command::new("linux.uml")
            .args(["mem=768M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"])
            .arg(format!("ubd0={}", disk.display()))
            .arg(format!("init={}", init.display()))
            .args(["con=null", "con0=null,fd:1", "ssl=null"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(dir.join("machine.log")).unwrap())
            // The machine is several processes: they die together.
            .process_group(0)
            .spawn()
            .expect("linux.uml (Debian: user-mode-linux)");
        let lines = read(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Lets it work for `patience` from its first operation on, and cuts the power. Everything it has said.
    pub fn work_and_die(mut self, patience: Duration) -> Vec<String> {
        let mut said = Vec::new();
        let booted = Instant::now();
        while !said.last().is_some_and(|line: &String| line.starts_with("done ")) {
            let line = self.lines.recv_timeout(BOOT_LIMIT.saturating_sub(booted.elapsed()));
            said.push(line.unwrap_or_else(|_| panic!("the machine does not work: {said:#?}")));
        }
        let until = Instant::now() + patience;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            said.push(line);
        }
        self.kill();
        said.extend(self.lines.iter());
        said
    }

    fn kill(&mut self) {
        let group = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.process.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read(from: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line.trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
    lines
}
