//! The name space against the model: every answer, every attribute, every time stamp.

use std::sync::Arc;

use cofs_engine::{Call, Engine, Fault, FaultEngine, FaultPlan, MemoryEngine};
use cofs_namespace::{
    check::Checker,
    dump::{dump, load},
};
use cofs_testkit::{
    answer::{Answer, Precision},
    compare::{Subject, apply_both, compare_seen, compare_trees, run, time_of, tree},
    model::{Model, Rules},
    namespace::NamespaceSubject,
    ops::{Mix, Op, Step, config, steps},
};
use proptest::prelude::*;
use rustix::io::Errno;

fn compare(steps: &[Step], inline_bytes_max: u32) -> Result<(), String> {
    let engine = Arc::new(MemoryEngine::new());
    let mut model = Model::new(Rules::default(), 0o755, time_of(0));
    let mut subject =
        NamespaceSubject::format(Arc::<MemoryEngine>::clone(&engine), inline_bytes_max, 0o755, time_of(0))
            .map_err(|error| format!("format: {error}"))?;
    run(&mut model, &mut subject, steps, Precision::Exact)?;
    let fail = |error| format!("{error}");
    subject.namespace().flush(time_of(steps.len())).map_err(fail)?;
    sound(&*engine, model.inode_count())?;
    subject.close_all(time_of(steps.len())).map_err(fail)?;
    model.close_all();
    subject.namespace().close(time_of(steps.len())).map_err(fail)?;
    sound(&*engine, model.inode_count())?;
    let mut dumped = Vec::new();
    dump(&*engine, &mut dumped).map_err(fail)?;
    let copy = Arc::new(MemoryEngine::new());
    load(&*copy, &mut dumped.as_slice()).map_err(fail)?;
    sound(&*copy, model.inode_count())?;
    let mut again = NamespaceSubject::open(copy).map_err(fail)?;
    again.take_objects(&mut subject);
    compare_trees(&mut model, &mut again, Precision::Exact)
}

/// The metadata contradicts itself nowhere, and has as many inodes as the model.
fn sound(engine: &dyn Engine, inodes: usize) -> Result<(), String> {
    let found = Checker::new(engine).check().map_err(|error| error.to_string())?;
    if !found.problems.is_empty() {
        return Err(format!("check found {:?}", found.problems));
    }
    if found.summary.inodes != inodes as u64 {
        return Err(format!("{} inodes, and the model has {inodes}", found.summary.inodes));
    }
    Ok(())
}

/// Cuts the power after `keep` of the commits that no sync has covered: what is left is the model's tree
/// after some number of steps, all that a sync has covered among them.
fn cut_power(steps: &[Step], keep: prop::sample::Index) -> Result<(), String> {
    let fail = |error| format!("{error}");
    let engine = Arc::new(MemoryEngine::new());
    let mut model = Model::new(Rules::default(), 0o755, time_of(0));
    let mut subject =
        NamespaceSubject::format(Arc::<MemoryEngine>::clone(&engine), 1 << 16, 0o755, time_of(0))
            .map_err(fail)?;
    let mut states = vec![model.clone()];
    for (index, step) in steps.iter().enumerate() {
        states.extend(model.privileges_removed(step, time_of(index)));
        apply_both(&mut model, &mut subject, index, step, Precision::Exact)?;
        if step.op == Op::Sync {
            states.clear();
        }
        states.push(model.clone());
    }
    let left = Arc::new(engine.after_power_cut(keep.index(engine.unsynced_commits() + 1)));
    let mut after = NamespaceSubject::open(Arc::<MemoryEngine>::clone(&left)).map_err(fail)?;
    after.recover(time_of(steps.len())).map_err(fail)?;
    let got = tree(&mut after, Precision::AfterCrash);
    let mut last = String::from("no state");
    for state in states.iter_mut().rev() {
        state.close_all();
        match compare_seen(&tree(state, Precision::AfterCrash), &got) {
            Ok(()) => return sound(&*left, state.inode_count()),
            Err(difference) => last = difference,
        }
    }
    Err(format!("none of {} states is left; from the oldest: {last}", states.len()))
}

/// The engine fails at some commit: from there on nothing succeeds that changes anything, and what was
/// acknowledged before is there, with at most the failed operation on top.
fn fail_commit(steps: &[Step], nth: u64, fault: Fault) -> Result<(), String> {
    let fail = |error| format!("{error}");
    let memory = Arc::new(MemoryEngine::new());
    let plan = FaultPlan::new().nth(Call::Commit, nth, fault);
    let engine = Arc::new(FaultEngine::new(Arc::<MemoryEngine>::clone(&memory), plan));
    let mut model = Model::new(Rules::default(), 0o755, time_of(0));
    let mut subject =
        NamespaceSubject::format(Arc::<FaultEngine>::clone(&engine), 1 << 16, 0o755, time_of(0))
            .map_err(fail)?;
    let mut with_failed = model.clone();
    let mut between = None;
    for (index, step) in steps.iter().enumerate() {
        with_failed = model.clone();
        between = model.privileges_removed(step, time_of(index));
        let expected = with_failed.apply(step, time_of(index));
        if expected == Answer::Skip {
            continue;
        }
        let expected = expected.seen_with(Precision::Exact);
        let got = subject.apply(step, time_of(index)).seen_with(Precision::Exact);
        if engine.is_poisoned() {
            if got == Answer::Done {
                return Err(format!("step {index} {step:?} succeeded on a failed engine"));
            }
            break;
        }
        if got != expected {
            return Err(format!("step {index} {step:?}: expected {expected:?}, got {got:?}"));
        }
        model = with_failed.clone();
    }
    let mut after = NamespaceSubject::open(Arc::<MemoryEngine>::clone(&memory)).map_err(fail)?;
    after.recover(time_of(steps.len())).map_err(fail)?;
    let got = tree(&mut after, Precision::AfterCrash);
    let mut compared = Ok(());
    for state in [Some(&mut with_failed), between.as_mut(), Some(&mut model)].into_iter().flatten() {
        state.close_all();
        compared = compare_seen(&tree(state, Precision::AfterCrash), &got);
        if compared.is_ok() {
            return sound(&*memory, state.inode_count());
        }
    }
    compared
}

/// Several threads at once: whatever their order was, the volume is sound after them, and nothing is left of
/// what they had open.
fn race(threads: &[Vec<Step>]) -> Result<(), String> {
    let fail = |error| format!("{error}");
    let engine = Arc::new(MemoryEngine::new());
    let first = NamespaceSubject::format(Arc::<MemoryEngine>::clone(&engine), 1 << 16, 0o777, time_of(0));
    let first = first.map_err(fail)?;
    std::thread::scope(|scope| {
        for steps in threads {
            let mut subject = first.sharing();
            scope.spawn(move || {
                for (index, step) in steps.iter().enumerate() {
                    let answer = subject.apply(step, time_of(index));
                    let harmless = !matches!(answer, Answer::Error(Errno::IO | Errno::NOSYS));
                    assert!(harmless, "{step:?}: {answer:?}");
                }
                // An inode may be gone under a slot's feet, which is no fault of the close.
                let _ = subject.close_all(time_of(steps.len()));
            });
        }
    });
    first.namespace().flush(time_of(0)).map_err(fail)?;
    let left = first.namespace().unlinked_set(None, 10).map_err(fail)?;
    if !left.is_empty() {
        return Err(format!("unlinked and closed, but still there: {left:?}"));
    }
    sound(&*engine, first.namespace().files() as usize)
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn the_name_space_behaves_like_the_model(steps in steps(Mix { xattr_bytes_max: 5000, ..Mix::default() })) {
        let result = compare(&steps, 8192);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }

    #[test]
    fn a_power_cut_leaves_a_prefix(
        steps in steps(Mix { large: false, ..Mix::default() }),
        keep in any::<prop::sample::Index>(),
    ) {
        let result = cut_power(&steps, keep);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }

    #[test]
    fn a_failed_commit_ends_all_change(
        steps in steps(Mix { large: false, ..Mix::default() }),
        nth in 3..40u64,
        fault in prop_oneof![
            Just(Fault::Errno(5)),
            Just(Fault::Unknown { committed: true }),
            Just(Fault::Unknown { committed: false })
        ],
    ) {
        let result = fail_commit(&steps, nth, fault);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }

    #[test]
    fn threads_leave_a_sound_volume(
        threads in prop::collection::vec(steps(Mix { large: false, steps: 200, ..Mix::default() }), 2..5),
    ) {
        let result = race(&threads);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }

    #[test]
    fn without_inline_data_too(steps in steps(Mix::default())) {
        let result = compare(&steps, 0);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}
