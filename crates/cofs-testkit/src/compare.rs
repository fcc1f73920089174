//! Puts the same operations to the model and to a subject, and says where they part.

use cofs_types::{FileKind, Timestamp};

use crate::{
    answer::{Answer, CLOCK_FROM_SECS, Precision},
    model::Model,
    ops::{NAMES, Op, Path, Step, Who, XATTRS},
};

/// Something that does operations: the model itself, a name space, a mounted directory.
pub trait Subject {
    fn apply(&mut self, step: &Step, now: Timestamp) -> Answer;
}

impl Subject for Model {
    fn apply(&mut self, step: &Step, now: Timestamp) -> Answer {
        Model::apply(self, step, now)
    }
}

/// The time of the `index`th step.
pub fn time_of(index: usize) -> Timestamp {
    Timestamp { secs: CLOCK_FROM_SECS + 1 + index as i64, nanos: 7 }
}

/// Runs `steps` on both; the error tells the first difference. Trees are compared at the end.
pub fn run(
    model: &mut Model,
    subject: &mut dyn Subject,
    steps: &[Step],
    precision: Precision,
) -> Result<(), String> {
    for (index, step) in steps.iter().enumerate() {
        apply_both(model, subject, index, step, precision)?;
    }
    compare_trees(model, subject, precision)
}

/// One step on both, with equal answers.
pub fn apply_both(
    model: &mut Model,
    subject: &mut dyn Subject,
    index: usize,
    step: &Step,
    precision: Precision,
) -> Result<(), String> {
    let expected = model.apply(step, time_of(index));
    if expected == Answer::Skip {
        return Ok(());
    }
    let got = subject.apply(step, time_of(index)).seen_with(precision);
    let expected = expected.seen_with(precision);
    if got == expected {
        return Ok(());
    }
    Err(format!("step {index} {step:?}:\n  expected {expected:?}\n  got      {got:?}"))
}

/// Compares what the superuser sees of both trees: names, attributes, bytes, extended attributes.
pub fn compare_trees(
    model: &mut Model,
    subject: &mut dyn Subject,
    precision: Precision,
) -> Result<(), String> {
    let (expected, got) = (tree(model, precision), tree(subject, precision));
    let mut pairs = expected.iter().zip(&got);
    if let Some((e, g)) = pairs.find(|(e, g)| e != g) {
        return Err(format!("trees differ:\n  expected {e:?}\n  got      {g:?}"));
    }
    if expected.len() != got.len() {
        let longer = if expected.len() > got.len() { &expected } else { &got };
        return Err(format!("one tree has more: {:?}", longer.get(expected.len().min(got.len()))));
    }
    Ok(())
}

/// Everything that can be asked of a tree, in the order of its paths.
pub fn tree(subject: &mut dyn Subject, precision: Precision) -> Vec<(Path, &'static str, Answer)> {
    let mut out = Vec::new();
    let mut pending = vec![Path::new()];
    while let Some(path) = pending.pop() {
        let mut ask = |what, op| {
            let answer = subject.apply(&Step { who: Who::ROOT, op }, time_of(0)).seen_with(precision);
            out.push((path.clone(), what, answer.clone()));
            answer
        };
        // Attributes before bytes: reading must not show in them.
        let Answer::Stat(view) = ask("stat", Op::Stat { path: path.clone() }) else { continue };
        if view.kind != FileKind::Symlink {
            for name in XATTRS {
                ask("xattr", Op::GetXattr { path: path.clone(), name });
            }
        }
        ask("xattrs", Op::ListXattr { path: path.clone() });
        match view.kind {
            FileKind::Regular => drop(ask("bytes", Op::ReadAll { path: path.clone() })),
            FileKind::Symlink => drop(ask("target", Op::Readlink { path: path.clone() })),
            FileKind::Directory => {
                if let Answer::Listing(entries) = ask("entries", Op::Readdir { path: path.clone() }) {
                    pending.extend(entries.iter().filter_map(|(name, _)| child(&path, name)));
                }
            }
            _ => {}
        }
    }
    out
}

fn child(parent: &[u8], name: &[u8]) -> Option<Path> {
    let index = NAMES.iter().position(|n| *n == name)?;
    Some([parent, &[index as u8]].concat())
}
