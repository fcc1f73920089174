//! A volume of the machine's, mounted.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use cofs_testkit::machine::{PATIENCE, sh, try_sh};
use serde_json::Value;

pub const MOUNT: &str = "/mnt/volume";

/// The program under test.
pub fn cofs() -> String {
    std::env::var("COFS_TEST_BINARY").unwrap()
}

pub struct Volume {
    store: String,
}

impl Volume {
    /// A new one, mounted in the background with these options.
    pub fn new(name: &str, options: &str) -> Self {
        let volume = Self { store: format!("/mnt/disk/{name}") };
        sh(&format!("{} format {}", cofs(), volume.store));
        volume.mount(options);
        volume
    }

    pub fn mount(&self, options: &str) {
        sh(&format!("{} mount -d {} {MOUNT} -o {options}", cofs(), self.store));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(MOUNT).join(name)
    }

    /// What `cofs status` tells of the mount; for a moment after its start it serves and does not know yet how.
    pub fn status(&self) -> Value {
        let mut told = Value::Null;
        wait_for("the status of the mount", || {
            let text = sh(&format!("{} status {MOUNT} --output json", cofs()));
            told = serde_json::from_str::<Value>(&text).unwrap()["mount"].take();
            !told.is_null()
        });
        told
    }

    /// The process that serves.
    pub fn server(&self) -> i64 {
        self.status()["pid"].as_i64().unwrap()
    }

    /// It is killed, having lived for long enough not to count towards giving up.
    pub fn kill(&self) {
        let server = self.server();
        thread::sleep(Duration::from_millis(500));
        sh(&format!("kill -KILL {server}"));
        wait_for("another process that serves", || {
            let told = try_sh(&format!("{} status {MOUNT} --output json", cofs()));
            let told: Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
            told["mount"]["pid"].as_i64().is_some_and(|pid| pid != server)
        });
    }

    pub fn unmount(&self) {
        sh(&format!("{} umount {MOUNT}", cofs()));
    }

    /// The mount ends in order, and nothing is wrong with the volume.
    pub fn end(self) {
        self.unmount();
        sh(&format!("{} fsck {} && rm -r {}", cofs(), self.store, self.store));
    }
}

#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what} does not come");
        thread::sleep(Duration::from_millis(50));
    }
}
