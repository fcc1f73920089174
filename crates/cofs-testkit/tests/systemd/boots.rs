//! The machine's two boots, seen from outside.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use cofs_testkit::machine::{Disk, Machine, run};

const INIT: &str = include_str!("init.sh");
const CONTRIB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib");
/// One volume for each way of mounting, as `init.sh` has them; all begin empty.
const VOLUMES: [&str; 5] = ["service", "over", "kept", "fstab", "auto"];
/// From switching on to off.
const BOOT_LIMIT: Duration = Duration::from_secs(900);

#[test]
fn volumes_under_systemd() {
    let Some(dir) = std::env::var_os("COFS_TEST_CRASH_DIR").map(PathBuf::from) else {
        return eprintln!("SKIPPED: COFS_TEST_CRASH_DIR is not set; ./test systemd sets it");
    };
    let cofs = PathBuf::from(std::env::var_os("COFS_TEST_BINARY").expect("COFS_TEST_BINARY")).canonicalize();
    let bench = Bench { disk: Disk::new(&dir), dir, cofs: cofs.unwrap() };
    bench.disk.attach();
    for volume in VOLUMES {
        run(Command::new(&bench.cofs).arg("format").arg(bench.disk.below.join(volume)));
    }
    bench.disk.detach();
    let mut wrong = bench.boot("first", "");
    wrong += bench.boot("second", "cofs@srv-service.service");
    assert_eq!(wrong, 0, "cases that failed, see above");
}

struct Bench {
    dir: PathBuf,
    disk: Disk,
    cofs: PathBuf,
}

impl Bench {
    /// Boots the machine for the cases of `name`, with `enabled` units, and looks at its disk afterwards. How many cases failed.
    fn boot(&self, name: &str, enabled: &str) -> usize {
        let init = INIT
            .replace("@COFS@", self.cofs.to_str().unwrap())
            .replace("@CONTRIB@", Path::new(CONTRIB).canonicalize().unwrap().to_str().unwrap())
            .replace("@TEST@", std::env::current_exe().unwrap().to_str().unwrap())
            .replace("@CASES@", &format!("cases::{name}"))
            .replace("@ENABLED@", enabled);
        let said = Machine::boot(&self.dir, &self.disk.image, &init).run_until_off(BOOT_LIMIT);
        let (is_off, said) = match said {
            Ok(said) => (true, said),
            Err(said) => (false, said),
        };
        for line in &said {
            println!("{name} | {line}");
        }
        let mut score = Score::default();
        for line in said.iter().filter(|line| line.starts_with("ok ") || line.starts_with("FAILED ")) {
            println!("{line}");
            score.failed += usize::from(line.starts_with("FAILED "));
        }
        let ended = said.iter().any(|line| line == "all cases have been tried");
        score.case(
            name,
            "all-cases-are-tried",
            if ended { Ok(()) } else { Err("it ended before".to_owned()) },
        );
        score.case(name, "switches-off", switched_off(is_off, &said));
        score.case(name, "the-disk-is-clean", self.looked_at());
        score.failed
    }

    /// What is on the disk after an orderly end: nothing to be done again, and volumes with which nothing is wrong.
    fn looked_at(&self) -> Result<(), String> {
        if !self.disk.is_clean() {
            return Err("the file system below was not unmounted".to_owned());
        }
        self.disk.attach();
        let checked: Result<(), String> =
            VOLUMES.iter().try_for_each(|volume| self.fsck(&self.disk.below.join(volume)));
        self.disk.detach();
        checked
    }

    fn fsck(&self, store: &Path) -> Result<(), String> {
        let output = Command::new(&self.cofs).arg("fsck").arg(store).output().unwrap();
        if output.status.success() { Ok(()) } else { Err(format!("{}: {output:?}", store.display())) }
    }
}

/// What systemd says when something could not be unmounted or did not end.
fn switched_off(is_off: bool, said: &[String]) -> Result<(), String> {
    let mine = |line: &&String| ["/srv", "/data", "cofs"].iter().any(|part| line.contains(part));
    let bad =
        |line: &&String| ["ailed", "FAILED", "Waiting for process"].iter().any(|part| line.contains(part));
    let from = said.iter().position(|line| line == "all cases have been tried").unwrap_or(0);
    let complaints: Vec<_> = said[from..].iter().filter(mine).filter(bad).collect();
    match (is_off, complaints.is_empty()) {
        (false, _) => Err("it still runs".to_owned()),
        (_, false) => Err(format!("{complaints:?}")),
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Score {
    failed: usize,
}

impl Score {
    fn case(&mut self, boot: &str, name: &str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => println!("ok {boot}/{name}"),
            Err(why) => {
                println!("FAILED {boot}/{name}");
                println!("{boot}/{name}: {why}");
                self.failed += 1;
            }
        }
    }
}
