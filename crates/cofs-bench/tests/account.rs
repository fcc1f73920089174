//! Suites that move data move what they say: the kernel's own account of each process (/proc/PID/io, proc(5)) has as many
//! calls and as many bytes in each phase, no more and no fewer. The processes are ranks, whose words to rank 0 are not in
//! that account, for it leaves out send(2) and recv(2); rank 0 alone speaks over pipes, and is not looked at.

mod common;

use std::{collections::BTreeMap, fs, time::Duration};

use cofs_bench::{Part, Place, Report, run};
use common::{
    names,
    rank::{Rank, free_place, ranked},
};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

/// What this program is when a test starts it anew.
#[test]
fn a_rank() {
    common::rank::be();
}

/// Calls that read and write, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Account {
    reads: u64,
    bytes_read: u64,
    writes: u64,
    bytes_written: u64,
}

impl Account {
    /// Of a process, since it began.
    fn of(process: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{process}/io")).unwrap();
        let number = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.unwrap().parse().unwrap()
        };
        Self {
            reads: number("syscr"),
            bytes_read: number("rchar"),
            writes: number("syscw"),
            bytes_written: number("wchar"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            bytes_read: self.bytes_read - before.bytes_read,
            writes: self.writes - before.writes,
            bytes_written: self.bytes_written - before.bytes_written,
        }
    }

    fn reading(reads: u64, bytes_read: u64) -> Self {
        Self { reads, bytes_read, ..Self::default() }
    }

    fn writing(writes: u64, bytes_written: u64) -> Self {
        Self { writes, bytes_written, ..Self::default() }
    }
}

/// Runs two rounds of `suite` with so many ranks. What the kernel has of all but rank 0, in each phase of the first.
fn watch(suite: &str, size: usize) -> (Report, BTreeMap<String, Vec<Account>>) {
    let (dir, meeting) = (TempDir::new().unwrap(), free_place());
    let place = |rank| Place { rank, size, meeting: meeting.clone() };
    let others: Vec<Rank> =
        (1..size).map(|rank| Rank::start(None, &place(rank), suite, dir.path())).collect();
    // Before each phase, when all wait for rank 0.
    let mut before = Vec::new();
    let report = run(&ranked(suite, &place(0), dir.path()), &mut |step| {
        let phase = step.what.rsplit_once(": ").unwrap().1.to_owned();
        let accounts = others.iter().map(|rank| Account::of(rank.child.id())).collect();
        before.push((phase, accounts));
    });
    let report = report.unwrap();
    others.into_iter().for_each(|rank| assert!(rank.end(PATIENCE).0.success()));
    assert_eq!(names(dir.path()).len(), 0);
    let each = before.windows(2).take(before.len() / 2).map(|pair| {
        let [(phase, begin), (_, end)] = pair else { unreachable!() };
        let begin: &Vec<Account> = begin;
        let of_ranks = end.iter().zip(begin).map(|(end, begin): (&Account, _)| end.since(*begin));
        (phase.clone(), of_ranks.collect())
    });
    (report, each.collect())
}

/// The kernel has of each rank and phase what `expected` makes of that which the suite says of them.
fn check(suite: &str, size: usize, expected: impl Fn(&str, &Part) -> Account) {
    let (report, accounts) = watch(suite, size);
    let mut moved = 0;
    for row in &report.rows {
        let told = &report.samples(&row.phase, 0)[0].processes[1..];
        let found = &accounts[&row.phase];
        assert_eq!((told.len(), found.len()), (size - 1, size - 1));
        for (rank, (part, found)) in told.iter().zip(found).enumerate() {
            let expected = expected(&row.phase, part);
            assert_eq!(*found, expected, "{suite}: {} of rank {}", row.phase, rank + 1);
            moved += found.bytes_read + found.bytes_written;
        }
    }
    assert!(moved > 0, "{suite}: nothing was at stake");
}

#[test]
fn ior_moves_what_it_says() {
    for words in ["", "-F -e", "-z", "-C -g", "-B"] {
        check(&format!("ior -w -r -W -b 64K -t 4K -s 2 {words}"), 3, |phase, part| {
            let (calls, bytes) = (part.work.operations, part.work.bytes);
            match phase {
                "write" => Account::writing(calls, bytes),
                "read" | "write check" => Account::reading(calls, bytes),
                _ => Account::default(),
            }
        });
    }
}

#[test]
fn mptio_moves_what_it_says() {
    for words in ["-f global", "-f process --direct", "-f global --overlap"] {
        check(&format!("mptio -t 3 -r 32K -b 4K -n 5 {words}"), 3, |phase, part| {
            let (calls, bytes) = (part.work.operations, part.work.bytes);
            match phase {
                "sequential write" | "random write" => Account::writing(calls, bytes),
                "sequential read" | "random read" => Account::reading(calls, bytes),
                // Each operation is a read and a write.
                _ => Account { reads: calls, bytes_read: bytes / 2, writes: calls, bytes_written: bytes / 2 },
            }
        });
    }
}

#[test]
fn btio_moves_what_it_says() {
    for form in ["epio", "simple"] {
        check(&format!("btio -c S --steps 7 -f {form}"), 4, |phase, part| {
            let (calls, bytes) = (part.work.operations, part.work.bytes);
            match phase {
                "write" => Account::writing(calls, bytes),
                _ => Account::reading(calls, bytes),
            }
        });
    }
    // Every byte goes through a window, once written and once read, in as many pieces as there are rows of cells: three
    // planes of each dump for each process, of twelve rows, each in two cells. And the kernel's boot id is read, which
    // tells the machine.
    let pieces = 3 * 12 * 2;
    check("btio -c S --steps 7 -f full", 4, |phase, part| {
        let (calls, bytes) = (part.work.operations, part.work.bytes);
        let windows = Account {
            reads: pieces * calls + 1,
            bytes_read: bytes + 36,
            writes: calls,
            bytes_written: bytes,
        };
        match phase {
            "write" => Account { writes: 2 * calls, bytes_written: 2 * bytes, ..windows },
            _ => Account { reads: windows.reads + calls, bytes_read: windows.bytes_read + bytes, ..windows },
        }
    });
}

#[test]
fn metabench_appends_what_it_says_and_else_moves_nothing() {
    check("metabench -n 70 -a 100", 3, |phase, part| match phase {
        "append" => Account::writing(part.work.operations, part.work.bytes),
        _ => Account::default(),
    });
}

#[test]
fn a_data_set_is_written_and_read_as_it_says() {
    check("dataset -n 70 --per-directory 10 --least 1K --most 4K", 3, |phase, part| {
        let (calls, bytes) = (part.work.operations, part.work.bytes);
        match phase {
            "make" => Account::writing(calls, bytes),
            // Each file is read until nothing comes.
            _ => Account::reading(2 * calls, bytes),
        }
    });
}

#[test]
fn io_moves_what_it_says() {
    check("io --large 3M --random 20", 2, |phase, part| {
        let (calls, bytes) = (part.work.operations, part.work.bytes);
        match phase {
            // The last operation is an fsync.
            "write" | "rewrite" | "random write" => Account::writing(calls - 1, bytes),
            _ => Account::reading(calls, bytes),
        }
    });
}

#[test]
fn metarates_moves_what_it_says() {
    check("metarates --files 60 --small 300", 3, |phase, part| {
        let calls = part.work.operations;
        match phase {
            "create+write" => Account::writing(calls, 300 * calls),
            "read" | "read again" => Account::reading(calls, 300 * calls),
            _ => Account::default(),
        }
    });
}
