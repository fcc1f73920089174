//! `cofs fsck`: checks a volume, and repairs it when told to.
//!
//! Order of a repair: the metadata, until a check of them finds nothing; then the volume is opened as a mount
//! would (what was open at a crash is settled); then metadata and pools are compared, and what can be put right
//! is; what nobody owns goes to the reclaim list. Last, inodes are made anew that objects with bytes carry the numbers of
//! and that are not there (`cofs-namespace`, `check/lost.rs`), in a volume that is closed again.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use cofs_engine::{EmbeddedEngine, Engine};
use cofs_namespace::check::{Checker, Found, Problem, Salvage, Summary, Was, repair};
use cofs_types::{InodeId, limits};
use serde_json::{Value, json};

use crate::{
    failure::{Done, Failure, Within},
    output::{self, Format},
    progress::Progress,
    volume::{
        compare::{Compared, Contradiction, compare},
        lock::Purpose,
        open::{Locked, find},
        parts::{now, open_engine, open_engine_read_only, open_placement_to_look, refuse_foreign},
        salvage::find_objects,
        tool::Tool,
    },
};

/// Exit bits of fsck(8).
const CORRECTED: u8 = 1;
const UNCORRECTED: u8 = 4;
const OPERATIONAL: u8 = 8;
pub const USAGE: u8 = 16;
/// Rounds of check and repair: one repair can uncover the next problem.
const ROUNDS_MAX: usize = 16;

/// Check a volume that is not mounted: names without data, data without names, everything in between.
///
/// Changes nothing unless --repair is given. Exit code, a sum: 0 nothing wrong; 1 errors corrected; 4 errors
/// left; 8 the check could not be done; 16 wrong usage.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume's directory.
    pub store: PathBuf,

    /// Put right what is wrong. Files whose names are lost go to /lost+found.
    #[arg(long)]
    pub repair: bool,
}

/// What a check has to tell.
#[derive(Debug, Default)]
struct Report {
    summary: Summary,
    objects: u64,
    /// What was wrong, and whether it is now right.
    problems: Vec<(String, bool)>,
    more: bool,
    /// Not everything could be looked at.
    incomplete: bool,
}

pub fn run(args: &Args, form: Format, progress: Progress) -> Done<ExitCode> {
    check(args, form, progress).map_err(|failure| failure.code(OPERATIONAL))
}

fn check(args: &Args, form: Format, progress: Progress) -> Done<ExitCode> {
    let purpose = if args.repair { Purpose::Change } else { Purpose::Look };
    let locked = find(&args.store)?.lock(purpose)?;
    let mut report = Report::default();
    if args.repair {
        repair_volume(&locked, &mut report, progress)?
    } else {
        look(&locked, &mut report, progress)?
    };
    let code = report.exit_code();
    report.print(&locked.store, code, form)?;
    Ok(ExitCode::from(code))
}

fn look(locked: &Locked, report: &mut Report, progress: Progress) -> Done {
    let engine = open_engine_read_only(&locked.store, &locked.config)?;
    refuse_foreign(&engine, &locked.config).within(locked.metadata())?;
    let find = |owners: &[InodeId]| find_objects(&locked.store, &locked.config, owners, progress);
    let checker = Checker::new(&engine).finding_objects(&find);
    let sign = progress.stage("checking the metadata");
    report.take(checker.check().within(locked.metadata())?, false);
    drop(sign);
    let placement = open_placement_to_look(&locked.store, &locked.config).within("pools")?;
    let compared = compare(&checker, &placement, progress).within(locked.metadata())?;
    for contradiction in &compared.contradictions {
        report.problems.push((contradiction.to_string(), false));
    }
    report.count(&compared);
    Ok(())
}

fn repair_volume(locked: &Locked, report: &mut Report, progress: Progress) -> Done {
    let engine = Arc::new(open_engine(&locked.store, &locked.config)?);
    refuse_foreign(&*engine, &locked.config).within(locked.metadata())?;
    let sign = progress.stage("checking and repairing the metadata");
    repair_metadata(locked, &engine, report, progress)?;
    drop(sign);
    if report.more || report.problems.iter().any(|(_, right)| !right) {
        // Nothing may be reclaimed on the word of metadata that contradict themselves.
        return Ok(());
    }
    let tool = Tool::open_with(locked, Arc::clone(&engine) as Arc<dyn Engine>)?;
    let mut lost = Vec::new();
    let repaired = repair_objects(&*engine, &tool, report, &mut lost, progress);
    match tool.close().and(repaired) {
        // What was found and done is told all the same.
        Err(failure) if report.incomplete => {
            report.problems.push((format!("not all could be done: {failure}"), false))
        }
        other => other?,
    }
    adopt(locked, &engine, report, lost, progress)
}

/// Makes the inodes anew that objects are tagged with; the metadata's repair finds that they have no names.
fn adopt(
    locked: &Locked,
    engine: &Arc<EmbeddedEngine>,
    report: &mut Report,
    mut lost: Vec<Salvage>,
    progress: Progress,
) -> Done {
    if lost.is_empty() {
        return Ok(());
    }
    lost.sort_by_key(|one| one.mtime);
    // Of several of one inode the youngest.
    let chosen: BTreeMap<_, _> = lost.iter().map(|one| (one.owner, *one)).collect();
    let is_chosen = |one: &Salvage| chosen.get(&one.owner) == Some(one);
    let problem = |(ino, one): (&InodeId, &Salvage)| Problem::Lost { ino: *ino, was: Was::Object(*one) };
    let problems: Vec<_> = chosen.iter().map(problem).collect();
    let any: Arc<dyn Engine> = Arc::clone(engine) as Arc<dyn Engine>;
    repair(&any, &problems, now()).within("metadata")?;
    let told = lost.iter().map(|one| (Contradiction::Lost(*one).to_string(), is_chosen(one)));
    report.problems.extend(told);
    let more = report.more;
    repair_metadata(locked, engine, report, progress)?;
    report.more |= more;
    Ok(())
}

fn repair_metadata(
    locked: &Locked,
    engine: &Arc<EmbeddedEngine>,
    report: &mut Report,
    progress: Progress,
) -> Done {
    let any: Arc<dyn Engine> = Arc::clone(engine) as Arc<dyn Engine>;
    let find = |owners: &[InodeId]| find_objects(&locked.store, &locked.config, owners, progress);
    for _ in 0..ROUNDS_MAX {
        let found = Checker::for_repair(&**engine).finding_objects(&find).check().within("metadata")?;
        if found.problems.is_empty() {
            // What an earlier round did not tell has come up since.
            (report.summary, report.more) = (found.summary, false);
            return Ok(());
        }
        repair(&any, &found.problems, now()).within("metadata")?;
        report.take(found, true);
    }
    report.take(Checker::new(&**engine).finding_objects(&find).check().within("metadata")?, false);
    Ok(())
}

/// What needs the metadata once more, without the tool, is put into `lost`.
fn repair_objects(
    engine: &dyn Engine,
    tool: &Tool,
    report: &mut Report,
    lost: &mut Vec<Salvage>,
    progress: Progress,
) -> Done {
    let checker = Checker::new(engine);
    let compared = compare(&checker, tool.placement(), progress).within("metadata")?;
    report.count(&compared);
    for orphans in compared.contradictions.chunks(limits::RECLAIM_BATCH) {
        let ids: Vec<_> = orphans
            .iter()
            .filter_map(|one| match one {
                Contradiction::Orphan { object, .. } => Some(*object),
                _ => None,
            })
            .collect();
        tool.namespace().reclaim_put(&ids).within("metadata")?;
    }
    for contradiction in &compared.contradictions {
        let right = match contradiction {
            Contradiction::Lost(one) => {
                lost.push(*one);
                continue;
            }
            Contradiction::Orphan { .. } => true,
            Contradiction::Tag { object, ino, .. } => tool.placement().set_owner(*object, *ino).is_ok(),
            Contradiction::Size { ino, object, .. } => tool.settle(*ino, *object).is_ok(),
            _ => false,
        };
        report.problems.push((contradiction.to_string(), right));
    }
    if let Err(failure) = tool.collect() {
        report.problems.push((format!("what is to be reclaimed could not all be removed: {failure}"), false));
    }
    Ok(())
}

impl Report {
    fn take(&mut self, found: Found, right: bool) {
        self.summary = found.summary;
        self.more = found.more;
        self.problems.extend(found.problems.iter().map(|problem| (problem.to_string(), right)));
    }

    fn count(&mut self, compared: &Compared) {
        self.objects = compared.objects;
        self.more |= compared.more;
        let is_unread = |one: &Contradiction| matches!(one, Contradiction::Unread { .. });
        self.incomplete = compared.contradictions.iter().any(is_unread);
    }

    fn exit_code(&self) -> u8 {
        let corrected = self.problems.iter().any(|(_, right)| *right);
        let left = self.more || self.problems.iter().any(|(_, right)| !right);
        u8::from(corrected) * CORRECTED
            + u8::from(left) * UNCORRECTED
            + u8::from(self.incomplete) * OPERATIONAL
    }

    fn print(&self, store: &Path, code: u8, form: Format) -> Done {
        let problem = |(text, right): &(String, bool)| json!({ "problem": text, "corrected": right });
        let summary = json!({
            "store": store.to_string_lossy(),
            "exit_code": code,
            "inodes": self.summary.inodes,
            "directories": self.summary.directories,
            "entries": self.summary.entries,
            "inline_chunks": self.summary.inline_chunks,
            "objects": self.objects,
            "open_for_writing": self.summary.writing,
            "unlinked_while_open": self.summary.unlinked,
            "to_reclaim": self.summary.reclaim,
            "problems": self.problems.iter().map(problem).collect::<Vec<_>>(),
            "more_problems": self.more,
        });
        match form {
            Format::Json | Format::Csv => output::document(form, &summary).map_err(Failure::from),
            Format::Table => self.print_words(summary),
        }
    }

    fn print_words(&self, mut summary: Value) -> Done {
        for (text, right) in &self.problems {
            let mark = if *right { "corrected" } else { "wrong" };
            output::print(&format!("{mark}: {}\n", output::printable(text)))?;
        }
        if self.more {
            output::print("wrong: there are more problems than are told; run it again after a repair\n")?;
        }
        if let Some(fields) = summary.as_object_mut() {
            fields.remove("problems");
            fields.remove("more_problems");
        }
        Ok(output::document(Format::Table, &summary)?)
    }
}
