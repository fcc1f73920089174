//! What helps and what does not, told from ratios: what is faster or slower in every repeat, by how much, and where
//! what depends on circumstances is best and worst.

use super::{
    html::{escape, times},
    points::{self, settings},
};
use crate::{
    Report, Unit,
    report::{Row, median},
    settings::processes,
};

/// A median that is further from 1 than this is said to help or not.
const MATTERS: f64 = 1.1;
/// Fewer operations than these in a phase say nothing (such as making the one directory of all).
const OPERATIONS_MIN: u64 = 16;

/// One phase of one result: the first directory against the other.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    pub operation: String,
    /// Each process works in a directory, or on a file, of its own.
    pub own: bool,
    pub first: String,
    pub second: String,
    pub processes: usize,
    pub ratio: f64,
    /// Of the repeats.
    pub range: [f64; 2],
}

/// All phases of all results that compare two directories.
pub fn comparisons(reports: &[&Report], names: &[String]) -> Vec<Comparison> {
    let of = |report: &Report, row: &Row| {
        let versus = row.versus.as_ref()?;
        let [least, most] = versus.ratio_range;
        let sound = [least, versus.ratio, most].iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
        (sound && tells(row)).then(|| Comparison {
            operation: operation(&report.suite, &row.phase),
            own: is_own(&settings(report).1),
            first: points::name(report, 0, names),
            second: points::name(report, 1, names),
            processes: report.processes,
            ratio: versus.ratio,
            range: versus.ratio_range,
        })
    };
    reports.iter().flat_map(|report| report.rows.iter().filter_map(move |row| of(report, row))).collect()
}

/// Whether the phase is a measurement of many operations.
pub fn tells(row: &Row) -> bool {
    match row.unit {
        Unit::MebibytesPerSecond => true,
        Unit::OperationsPerSecond => row.median.work.operations >= OPERATIONS_MIN,
        Unit::Seconds => false,
    }
}

/// What readers call a phase: that of metarates as the papers do, others with their suite.
pub fn operation(suite: &str, phase: &str) -> String {
    if suite == "metarates" { phase.to_owned() } else { format!("{phase} ({suite})") }
}

/// Whether these options of a suite give each process a directory or a file of its own.
pub fn is_own(words: &str) -> bool {
    words.split(", ").any(|word| matches!(word, "own" | "unique" | "file_per_process"))
}

/// How an operation stands over all comparisons.
#[derive(Debug)]
pub struct Standing<'a> {
    pub operation: &'a str,
    /// The middle one of the comparisons' ratios.
    pub ratio: f64,
    /// Of all repeats.
    pub range: [f64; 2],
    /// Comparisons in which every repeat is faster, in which every one is slower, and all.
    pub faster: usize,
    pub slower: usize,
    pub all: usize,
    /// Where the first is least and most a multiple of the other.
    pub worst: &'a Comparison,
    pub best: &'a Comparison,
}

/// In the order in which operations come first.
pub fn standings(comparisons: &[Comparison]) -> Vec<Standing<'_>> {
    let mut operations: Vec<(&str, Vec<&Comparison>)> = Vec::new();
    for one in comparisons {
        match operations.iter_mut().find(|(operation, _)| *operation == one.operation) {
            Some((_, all)) => all.push(one),
            None => operations.push((&one.operation, vec![one])),
        }
    }
    operations.into_iter().filter_map(|(operation, all)| standing(operation, all)).collect()
}

fn standing<'a>(operation: &'a str, mut all: Vec<&'a Comparison>) -> Option<Standing<'a>> {
    all.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    Some(Standing {
        operation,
        ratio: middle(&all)?,
        range: range(&all),
        faster: all.iter().filter(|one| one.range[0] > 1.0).count(),
        slower: all.iter().filter(|one| one.range[1] < 1.0).count(),
        all: all.len(),
        worst: all.first()?,
        best: all.last()?,
    })
}

/// Least, middle and most of these; none if there are none.
pub fn ratio_of(all: &[&Comparison]) -> Option<[f64; 3]> {
    let [least, most] = range(all);
    Some([least, middle(all)?, most])
}

fn middle(all: &[&Comparison]) -> Option<f64> {
    median(all.iter().map(|one| one.ratio))
}

fn range(all: &[&Comparison]) -> [f64; 2] {
    crate::report::range(all.iter().flat_map(|one| one.range))
}

/// What is said of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Helps,
    Hurts,
    /// Faster here, slower there.
    Depends,
    /// Repeats differ on all of it.
    Alike,
}

impl Standing<'_> {
    pub fn verdict(&self) -> Verdict {
        match (self.faster, self.slower) {
            (1.., 0) if self.ratio >= MATTERS => Verdict::Helps,
            (0, 1..) if self.ratio <= 1.0 / MATTERS => Verdict::Hurts,
            (0, 0) => Verdict::Alike,
            _ => Verdict::Depends,
        }
    }

    fn said(&self) -> String {
        let Self { faster, slower, all, .. } = self;
        let [least, most] = self.range.map(times);
        let surely = match self.verdict() {
            Verdict::Helps if faster < all => format!("; surely in {faster} of {all} comparisons"),
            Verdict::Hurts if slower < all => format!("; surely in {slower} of {all} comparisons"),
            _ => String::new(),
        };
        format!("<b>{}</b> {}× ({least} to {most}{surely})", escape(self.operation), times(self.ratio))
    }

    /// Where it is best and worst.
    fn circumstances(&self) -> String {
        let Self { faster, slower, all, worst, best, .. } = self;
        format!(
            ": of {all} comparisons surely faster in {faster}, slower in {slower}; from {}× {} to {}× {}",
            times(worst.ratio),
            escape(&worst.circumstances()),
            times(best.ratio),
            escape(&best.circumstances())
        )
    }
}

impl Comparison {
    fn circumstances(&self) -> String {
        let place = if self.own { "own" } else { "shared" };
        format!("with {}, {place}, against {}", processes(self.processes), self.second)
    }
}

/// Sentences on what helps, what does not, and what depends on what; the strongest first.
pub fn sentences(comparisons: &[Comparison]) -> String {
    let mut standings = standings(comparisons);
    standings.sort_by(|a, b| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
    let of = |verdict| standings.iter().filter(move |one| one.verdict() == verdict);
    let mut out = String::from("<ul class=\"verdict\">\n");
    for (verdict, class, words) in [
        (Verdict::Helps, "helps", "Helps"),
        (Verdict::Hurts, "hurts", "Does not help"),
        (Verdict::Alike, "", "Cannot be told apart"),
    ] {
        let mine: Vec<String> = of(verdict).map(Standing::said).collect();
        if !mine.is_empty() {
            out.push_str(&format!("<li class=\"{class}\">{words}: {}.</li>\n", mine.join("; ")));
        }
    }
    let depends: Vec<String> = of(Verdict::Depends)
        .map(|one| format!("<li>{}{}.</li>\n", one.said(), one.circumstances()))
        .collect();
    if !depends.is_empty() {
        out.push_str(&format!("<li>Depends:<ul>{}</ul></li>\n", depends.concat()));
    }
    out + "</ul>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(operation: &str, processes: usize, range: [f64; 2]) -> Comparison {
        Comparison {
            operation: operation.to_owned(),
            own: false,
            first: "a".to_owned(),
            second: "b".to_owned(),
            processes,
            ratio: (range[0] + range[1]) / 2.0,
            range,
        }
    }

    #[test]
    fn what_is_said_follows_the_figures() {
        let all = [
            comparison("create", 1, [2.0, 4.0]),
            comparison("create", 4, [5.0, 7.0]),
            comparison("read", 1, [0.2, 0.4]),
            comparison("read", 4, [0.5, 1.2]),
            comparison("stat", 1, [0.1, 0.3]),
            comparison("stat", 4, [2.0, 2.2]),
            comparison("open", 1, [0.9, 1.1]),
        ];
        let verdicts: Vec<(&str, Verdict)> =
            standings(&all).iter().map(|one| (one.operation, one.verdict())).collect();
        let expected = [
            ("create", Verdict::Helps),
            ("read", Verdict::Hurts),
            ("stat", Verdict::Depends),
            ("open", Verdict::Alike),
        ];
        assert_eq!(verdicts, expected);
        let said = sentences(&all);
        assert!(said.contains("Helps: <b>create</b> 4.2× (2.0 to 7.0)."), "{said}");
        assert!(
            said.contains("Does not help: <b>read</b> 0.50× (0.20 to 1.2; surely in 1 of 2 comparisons)."),
            "{said}"
        );
        assert!(
            said.contains("of 2 comparisons surely faster in 1, slower in 1; from 0.20× with 1 process, shared, against b to 2.1×"),
            "{said}"
        );
        assert!(said.contains("Cannot be told apart: <b>open</b> 1.0× (0.90 to 1.1)."), "{said}");
    }

    #[test]
    fn one_repeat_that_says_otherwise_or_too_little_is_no_help() {
        let verdict = |ranges: &[[f64; 2]]| {
            let all: Vec<Comparison> = ranges.iter().map(|range| comparison("x", 1, *range)).collect();
            standings(&all)[0].verdict()
        };
        for (ranges, expected) in [
            // Faster at the median, not in every repeat; slower the same.
            (&[[0.9, 5.0]][..], Verdict::Alike),
            (&[[0.1, 1.1]], Verdict::Alike),
            // Surely faster by far more than it is surely slower elsewhere, and the reverse.
            (&[[8.0, 9.0], [8.0, 9.0], [0.7, 0.8]], Verdict::Depends),
            (&[[0.1, 0.2], [0.1, 0.2], [1.3, 1.4]], Verdict::Depends),
            // Surely, but by too little.
            (&[[1.01, 1.09]], Verdict::Depends),
            (&[[0.95, 0.99]], Verdict::Depends),
            (&[[1.1, 1.3]], Verdict::Helps),
            (&[[0.7, 0.9]], Verdict::Hurts),
        ] {
            assert_eq!(verdict(ranges), expected, "{ranges:?}");
        }
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert!(standings(&[]).is_empty() && ratio_of(&[]).is_none());
    }
}
