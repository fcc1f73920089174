//! The machine's boot, seen from outside.

use std::{path::PathBuf, time::Duration};

use cofs_testkit::machine::{Disk, Kernel, Machine};

use crate::cases;

const INIT: &str = include_str!("init.sh");
/// From switching on to off.
const LIMIT: Duration = Duration::from_secs(1500);
/// What the cases are told by name: programs, and how many of them are wanted.
const TOLD: [&str; 7] = [
    "COFS_TEST_BINARY",
    "COFS_TEST_POSIX",
    "COFS_TEST_CRASH",
    "COFS_TEST_FSX",
    "COFS_TEST_PROGRAMS",
    "COFS_TEST_ROUNDS",
    "COFS_TEST_ONLY",
];

#[test]
fn a_volume_on_another_kernel() {
    let Some(dir) = std::env::var_os("COFS_TEST_CRASH_DIR").map(PathBuf::from) else {
        return eprintln!("SKIPPED: COFS_TEST_CRASH_DIR is not set; ./test kernels sets it");
    };
    let unpacked = std::env::var_os("COFS_TEST_KERNEL").map(PathBuf::from);
    let kernel = unpacked.map_or_else(Kernel::own, |dir| Kernel::unpacked(&dir));
    let disk = Disk::new(&dir);
    let environment = TOLD.map(|name| format!("{name}='{}'", std::env::var(name).unwrap_or_default()));
    let init = INIT
        .replace("@ENVIRONMENT@", &environment.join(" "))
        .replace("@TEST@", std::env::current_exe().unwrap().to_str().unwrap());
    let said = Machine::boot_kernel(&kernel, &dir, &disk.image, &init).run_until_off(LIMIT);
    let said = said.unwrap_or_else(|said| said);
    for line in &said {
        println!("{line}");
    }
    for name in cases::names() {
        assert!(said.iter().any(|line| *line == format!("ok {name}")), "{name}, see above");
    }
    assert!(said.iter().any(|line| line == "the disk is unmounted"));
    assert!(disk.is_clean());
}
