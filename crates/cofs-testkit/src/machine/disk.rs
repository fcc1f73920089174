//! A machine's disk: an image of ext4 that is looked at from here while no machine has it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const DISK_BYTES: u64 = 2 << 30;

pub struct Disk {
    /// The image.
    pub image: PathBuf,
    /// Where it is mounted while it is attached.
    pub below: PathBuf,
}

impl Disk {
    /// A new disk in `dir`, not attached.
    pub fn new(dir: &Path) -> Self {
        let disk = Self { image: dir.join("disk"), below: dir.join("below") };
        fs::create_dir_all(&disk.below).unwrap();
        fs::File::create(&disk.image).unwrap().set_len(DISK_BYTES).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.image));
        disk
    }

    /// Mounts it here.
    pub fn attach(&self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.below));
    }

    pub fn detach(&self) {
        run(Command::new("umount").arg(&self.below));
    }

    /// Whether its last mount was ended in order: the journal holds nothing that would have to be done again.
    pub fn is_clean(&self) -> bool {
        let output = run(Command::new("dumpe2fs").arg("-h").arg(&self.image));
        !String::from_utf8_lossy(&output.stdout).contains("needs_recovery")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.below).stderr(Stdio::null()).status();
    }
}

/// Runs a command that must succeed.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
