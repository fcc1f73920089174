//! The machine that works until its power goes.

use std::{path::Path, time::Duration};

use cofs_testkit::machine::Machine;

const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// The machine's first process: mounts the disk and the volume on it, and works until the power goes.
const INIT: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev
insmod "@MODULES@/$(uname -r)/kernel/fs/fuse/fuse.ko"
mount -t tmpfs tmp /mnt && mkdir /mnt/disk /mnt/volume && mount /dev/ubda /mnt/disk &&
@COFS@ mount -d /mnt/disk/store /mnt/volume &&
COFS_TEST_SEED=@SEED@ COFS_TEST_DIR=/mnt/volume @WORK@ --exact rounds::work_until_the_power_goes --ignored --nocapture
echo "ended $?"
sleep 1000
"#;

/// Boots a machine that works on the volume in `disk`, lets it work for `patience` from its first operation on, and
/// cuts the power. Everything it has said.
pub fn work_and_die(dir: &Path, disk: &Path, cofs: &Path, seed: u64, patience: Duration) -> Vec<String> {
    let work = std::env::current_exe().unwrap();
    let init = INIT
        .replace("@COFS@", cofs.to_str().unwrap())
        .replace("@WORK@", work.to_str().unwrap())
        .replace("@SEED@", &seed.to_string());
    let mut machine = Machine::boot(dir, disk, &init);
    machine.hear(BOOT_LIMIT, |line| line.starts_with("done "));
    machine.listen(patience);
    machine.cut_power()
}
