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
    compare_seen(&tree(model, precision), &tree(subject, precision))
}

/// What was asked of a tree, and answered.
pub type Seen = Vec<(Path, &'static str, Answer)>;

/// Compares the model's tree with a subject's: to look at one changes its access times.
pub fn compare_seen(expected: &Seen, got: &Seen) -> Result<(), String> {
    let agree =
        |(e, g): &(&(Path, _, Answer), &(Path, _, Answer))| (&e.0, e.1) == (&g.0, g.1) && e.2.agrees(&g.2);
    if let Some((e, g)) = expected.iter().zip(got).find(|pair| !agree(pair)) {
        return Err(format!("trees differ:\n  expected {e:?}\n  got      {g:?}"));
    }
    if expected.len() != got.len() {
        let longer = if expected.len() > got.len() { expected } else { got };
        return Err(format!("one tree has more: {:?}", longer.get(expected.len().min(got.len()))));
    }
    Ok(())
}

/// Everything that can be asked of a tree. All attributes come before any bytes: reading must not show in them.
pub fn tree(subject: &mut dyn Subject, precision: Precision) -> Seen {
    let (mut out, found) = attributes(subject, precision);
    for (path, kind) in &found {
        let mut ask = |what, op| out.push((path.clone(), what, answer(subject, op, precision)));
        if *kind != FileKind::Symlink {
            for name in XATTRS {
                ask("xattr", Op::GetXattr { path: path.clone(), name });
            }
        }
        ask("xattrs", Op::ListXattr { path: path.clone() });
        match kind {
            FileKind::Regular => ask("bytes", Op::ReadAll { path: path.clone() }),
            FileKind::Symlink => ask("target", Op::Readlink { path: path.clone() }),
            _ => {}
        }
    }
    out
}

/// The attributes of a tree's regular files, with all times. Nothing is read.
pub fn stats(subject: &mut dyn Subject) -> Seen {
    let (mut seen, _) = attributes(subject, Precision::Exact);
    seen.retain(|(_, _, answer)| matches!(answer, Answer::Stat(view) if view.kind == FileKind::Regular));
    seen
}

/// Attributes and listings, and what was found.
fn attributes(subject: &mut dyn Subject, precision: Precision) -> (Seen, Vec<(Path, FileKind)>) {
    let (mut out, mut found) = (Seen::new(), Vec::new());
    let mut pending = vec![Path::new()];
    while let Some(path) = pending.pop() {
        let stat = answer(subject, Op::Stat { path: path.clone() }, precision);
        out.push((path.clone(), "stat", stat.clone()));
        let Answer::Stat(view) = stat else { continue };
        if view.kind == FileKind::Directory {
            let listing = answer(subject, Op::Readdir { path: path.clone() }, precision);
            if let Answer::Listing(entries) = &listing {
                pending.extend(entries.iter().filter_map(|(name, _)| child(&path, name)));
            }
            out.push((path.clone(), "entries", listing));
        }
        found.push((path, view.kind));
    }
    (out, found)
}

fn answer(subject: &mut dyn Subject, op: Op, precision: Precision) -> Answer {
    subject.apply(&Step { who: Who::ROOT, op }, time_of(0)).seen_with(precision)
}

fn child(parent: &[u8], name: &[u8]) -> Option<Path> {
    let index = NAMES.iter().position(|n| *n == name)?;
    Some([parent, &[index as u8]].concat())
}
