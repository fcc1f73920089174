//! The ledger of what a mount does otherwise than Linux's own file systems: `tests/ledger/posix.toml`.

use std::{collections::BTreeSet, fs, path::Path};

use crate::support::Scratch;

/// Cases that ask [`deviates`]. Each line of the ledger is one of them.
const CASES: [&str; 5] = [
    "outsiders_leave_a_set_group_id_bit_without_group_execute",
    "roots_write_takes_set_id_bits_with_the_capabilities",
    "a_stranger_may_change_the_owner_to_nobody_in_particular_while_it_is_written",
    "a_removed_file_is_opened_again_by_who_holds_its_inode",
    "times_that_are_set_stay_when_a_mapping_is_written_back",
];

/// Whether `case` must come out as the ledger has it: on a mount, if it stands there.
pub fn deviates(s: &Scratch, case: &str) -> bool {
    const FUSE: i64 = 0x6573_5546;
    assert!(CASES.contains(&case), "{case}");
    rustix::fs::statfs(s.top()).unwrap().f_type as i64 == FUSE && lines().contains(case)
}

/// Whether a file of this mount is written past the kernel's page cache: by kernels that lose what is appended through it (since Linux 6.17), but for large ones that are
/// passed through.
pub fn is_written_past_pages(s: &Scratch, large: bool) -> bool {
    cofs_testkit::machine::running() >= (6, 17) && !(large && passes_through(s))
}

/// Whether the mount passes large files through.
fn passes_through(s: &Scratch) -> bool {
    let mut status = vec![0; 64 << 10];
    let told = |top: &Path| rustix::fs::getxattr(top, "cofs.status", &mut status).ok();
    let length = s.top().ancestors().find_map(told).unwrap_or(0);
    // What it tells of the mount is a text within the text.
    String::from_utf8_lossy(&status[..length]).replace('\\', "").contains(r#""passthrough":true"#)
}

fn lines() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ledger/posix.toml");
    let text = fs::read_to_string(page).expect("tests/ledger/posix.toml");
    let lines = text.lines().filter_map(|line| line.split_once(" = \""));
    lines.filter(|(name, _)| !name.starts_with('#')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn the_ledger_has_no_line_without_a_case() {
    let cases = CASES.map(str::to_owned);
    assert!(lines().iter().all(|line| cases.contains(line)), "{:?}", lines());
}
