//! The model against a real directory: what holds the model to the truth, and any mount to the model.
//!
//! The directory is `COFS_TEST_DIR` (a mount, say), else the system's place for temporary files, which should
//! be ext4 or XFS. Needs root, since users are played.

use cofs_testkit::{
    answer::{Answer, Precision},
    compare::{run, time_of},
    directory::{Directory, can_play_users, scratch},
    model::{Model, Rules},
    ops::{Mix, config, steps},
};
use proptest::prelude::*;

/// Files around the default inline maximum, so that on a mount they move between inline data and objects.
const MIX: Mix = Mix { steps: 60, boundary: 16 << 10, large: true, users: true, xattr_bytes_max: 300 };

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn a_directory_behaves_like_the_model(steps in steps(MIX)) {
        if !can_play_users() {
            return Ok(());
        }
        let dir = scratch().expect("a scratch directory");
        let mut model = Model::new(Rules::of(dir.path()), 0o755, time_of(0));
        let mut subject = Directory::new(dir.path()).expect("the scratch directory opens");
        let result = run(&mut model, &mut subject, &steps, Precision::OwnClock);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}

/// The operations are worth something: enough of each kind succeed, and enough fail.
#[test]
fn operations_meet() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut counts = [0usize; 3];
    for _ in 0..50 {
        let case = steps(Mix::default()).new_tree(&mut runner).expect("a case").current();
        let mut model = Model::new(Rules::default(), 0o777, time_of(0));
        for (index, step) in case.iter().enumerate() {
            let class = match model.apply(step, time_of(index)) {
                Answer::Skip => 0,
                Answer::Error(_) => 1,
                _ => 2,
            };
            if let Some(count) = counts.get_mut(class) {
                *count += 1;
            }
        }
    }
    let [skipped, failed, done] = counts;
    assert!(done * 10 > (skipped + failed + done) * 2, "skipped {skipped}, failed {failed}, done {done}");
    println!("skipped {skipped}, failed {failed}, done {done}");
}
