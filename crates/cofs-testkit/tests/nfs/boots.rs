//! The machine's boot, seen from outside.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use cofs_testkit::machine::{Disk, Machine};

use crate::cases;

const INIT: &str = include_str!("init.sh");
/// From switching on to off.
const LIMIT: Duration = Duration::from_secs(1200);

#[test]
fn a_pool_on_nfs_whose_server_is_out_of_reach() {
    let Some(dir) = std::env::var_os("COFS_TEST_CRASH_DIR").map(PathBuf::from) else {
        return eprintln!("SKIPPED: COFS_TEST_CRASH_DIR is not set; ./test hanging sets it");
    };
    let cofs = PathBuf::from(std::env::var_os("COFS_TEST_BINARY").expect("COFS_TEST_BINARY"));
    let cofs = cofs.canonicalize().unwrap();
    let disk = Disk::new(&dir);
    disk.attach();
    std::fs::create_dir(disk.below.join("export")).unwrap();
    disk.detach();
    let said = boot(&dir, &disk, &cofs);
    for line in &said {
        println!("{line}");
    }
    for (name, _) in &cases::CASES[..cases::count()] {
        assert!(said.iter().any(|line| *line == format!("ok {name}")), "{name}, see above");
    }
    assert!(said.iter().any(|line| line == "the disk is unmounted"));
    assert!(disk.is_clean());
}

fn boot(dir: &Path, disk: &Disk, cofs: &Path) -> Vec<String> {
    let init = INIT
        .replace("@COFS@", cofs.to_str().unwrap())
        .replace("@ROUNDS@", &cases::count().to_string())
        .replace("@TEST@", std::env::current_exe().unwrap().to_str().unwrap());
    Machine::boot(dir, &disk.image, &init).run_until_off(LIMIT).unwrap_or_else(|said| said)
}
