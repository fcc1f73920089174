//! mdtest's table.

use super::{Kind, Mdtest, STEPS, TREE_CREATION, TREE_REMOVAL};
use crate::{Figure, Report, report::Spread};

pub fn tables(mdtest: &Mdtest, report: &Report, target: usize) -> String {
    let forms = match (mdtest.print_both, mdtest.print_time) {
        (true, _) => &[false, true][..],
        (false, true) => &[true],
        (false, false) => &[false],
    };
    let head = heading(mdtest, report.processes as u64);
    head + &forms.iter().map(|time| table(mdtest, report, target, *time)).collect::<String>()
}

fn heading(mdtest: &Mdtest, processes: u64) -> String {
    let Ok(shape) = mdtest.shape() else { return String::new() };
    let what = match (mdtest.does_kind(Kind::File), mdtest.does_kind(Kind::Directory)) {
        (true, true) => "files/directories",
        (true, false) => "files",
        _ => "directories",
    };
    format!("{processes} tasks, {} {what}\n", processes * shape.items * shape.trees)
}

fn table(mdtest: &Mdtest, report: &Report, target: usize, time: bool) -> String {
    let what = if time { "time" } else { "rate" };
    let mut out = format!("\nSUMMARY {what}: (of {} iterations)\n", report.repeats);
    out.push_str("   Operation                      Max            Min           Mean        Std Dev\n");
    out.push_str("   ---------                      ---            ---           ----        -------\n");
    for kind in [Kind::Directory, Kind::File].into_iter().filter(|kind| mdtest.does_kind(*kind)) {
        let names = STEPS.iter().map(|(_, names)| names[kind as usize]).filter(|name| !name.is_empty());
        for name in names {
            out.push_str(&line(name, report.samples(name, target), &|f| {
                if time { f.seconds } else { f.value }
            }));
        }
    }
    out.push_str(&stonewall(report.samples("file creation", target), time));
    // The rate of a tree is that of one tree's directories, however many trees there are.
    let directories = mdtest.shape().map_or(0, |shape| shape.directories) as f64;
    for name in [TREE_CREATION, TREE_REMOVAL] {
        let value = |f: &Figure| if time { f.seconds } else { directories / f.seconds };
        out.push_str(&line(name, report.samples(name, target), &value));
    }
    out
}

fn line(name: &str, samples: &[Figure], value: &dyn Fn(&Figure) -> f64) -> String {
    let Spread { max, min, mean, deviation } = Spread::of(samples.iter().map(value));
    let mut letters = name.chars();
    let title: String =
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect();
    format!("   {title:<22} {max:>14.3} {min:>14.3} {mean:>14.3} {deviation:>14.3}\n")
}

/// What was done when the time was over, of all iterations together.
fn stonewall(samples: &[Figure], time: bool) -> String {
    let seconds: f64 = samples.iter().filter_map(|f| f.work.spans.get("stonewall")).sum();
    let items: u64 = samples.iter().filter_map(|f| f.work.counts.get("stonewall items")).sum();
    if items == 0 {
        return String::new();
    }
    let value = if time { seconds } else { items as f64 / seconds };
    format!("   {:<23}{:>14} {:>14} {value:>14.3} {:>14}\n", "File create (stonewall)", "NA", "NA", "NA")
}
