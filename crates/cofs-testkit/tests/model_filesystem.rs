//! The file-system layer against the model, without a kernel: inline files, objects, and the way between them.

use cofs_namespace::check::Checker;
use cofs_testkit::{
    answer::Precision,
    compare::{compare_seen, compare_trees, run, stats, time_of, tree},
    filesystem::FileSystemSubject,
    model::{Model, Rules},
    ops::{Mix, Step, config, steps},
};
use proptest::prelude::*;

const MIX: Mix = Mix { steps: 60, boundary: 8192, large: true, users: false, xattr_bytes_max: 300 };

fn precision_of(crash: bool) -> Precision {
    if crash { Precision::OwnClockAfterCrash } else { Precision::OwnClock }
}

fn compare(steps: &[Step], passthrough: bool, crash: bool) -> Result<(), String> {
    let fail = |error| format!("{error}");
    let mut model = Model::new(Rules::default(), 0o755, time_of(0));
    let mut subject =
        FileSystemSubject::format(MIX.boundary as u32, 0o755, passthrough, time_of(0)).map_err(fail)?;
    run(&mut model, &mut subject, steps, Precision::OwnClock)?;
    model.close_all();
    // Everything is read once more, a tick of the clock later, so that access times wait to be committed.
    std::thread::sleep(std::time::Duration::from_millis(5));
    tree(&mut subject, precision_of(crash));
    let before = stats(&mut subject);
    let mut again = if crash { subject.crash() } else { subject.remount() }.map_err(fail)?;
    if !crash {
        compare_seen(&before, &stats(&mut again)).map_err(|error| format!("over the remount, {error}"))?;
    }
    let found = Checker::new(again.engine()).check().map_err(fail)?;
    if !found.problems.is_empty() {
        return Err(format!("check found {:?}", found.problems));
    }
    compare_trees(&mut model, &mut again, precision_of(crash))
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn the_file_system_behaves_like_the_model(steps in steps(MIX), passthrough: bool) {
        let result = compare(&steps, passthrough, false);
        prop_assert!(result.is_ok(), "passthrough {passthrough}: {}", result.unwrap_err());
    }

    /// What was acknowledged is there after the process has ended without a word.
    #[test]
    fn nothing_acknowledged_is_lost_with_the_process(steps in steps(MIX), passthrough: bool) {
        let result = compare(&steps, passthrough, true);
        prop_assert!(result.is_ok(), "passthrough {passthrough}: {}", result.unwrap_err());
    }
}
