//! metarates, io and tree do what they say, watched by strace; every suite runs to its end, alone and compared, and
//! leaves nothing behind.

mod common;

use cofs_bench::{Dataset, Io, Kind, Metarates, Options, Python, Source, Tree, run, table};
use common::{Witness, entries, figure, measured, names, options, refused, suite, why_not};
use tempfile::TempDir;

#[test]
fn every_suite_runs_and_cleans_up() {
    let suites: [Kind; 6] = [
        suite::<Metarates>("--files 25"),
        suite::<Tree>("--files 25 --per-directory 10"),
        suite::<Io>("--large 2M --random 20"),
        suite::<Dataset>("-n 25 --per-directory 10 --most 8K"),
        suite::<Source>("-n 7 --per-directory 3"),
        suite::<Python>("-n 3 --modules 4 --paths 2"),
    ];
    for suite in suites {
        let name = suite.suite().name();
        let (a, b) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let versus = Some(b.path().to_owned());
        let report = measured(&Options { versus, repeats: 2, ..options(suite, 3, a.path()) });
        assert!(!report.rows.is_empty());
        for row in &report.rows {
            assert_eq!(row.samples.len(), 2, "{}", row.phase);
            assert!(row.median.value > 0.0 && row.median.value.is_finite(), "{row:?}");
            assert!(row.versus.as_ref().is_some_and(|v| v.ratio > 0.0 && v.samples.len() == 2), "{row:?}");
        }
        assert!(table(&report).contains(&report.rows[0].phase));
        for dir in [a, b] {
            assert_eq!(entries(dir.path()), 0, "{name}");
        }
    }
}

#[test]
fn every_other_round_begins_with_the_other_directory() {
    let (a, b) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let versus = Some(b.path().to_owned());
    let suite = suite::<Metarates>("--files 5");
    let options = Options { versus, repeats: 3, warm_ups: 1, ..options(suite, 1, a.path()) };
    let mut turns = Vec::new();
    run(&options, &mut |step| {
        let (round, rest) = step.what.split_once(" of 4, ").unwrap();
        let of_a = rest.starts_with(a.path().to_str().unwrap());
        turns.push(format!("{round}{}", if of_a { 'a' } else { 'b' }));
    })
    .unwrap();
    turns.dedup();
    assert_eq!(turns, ["1a", "1b", "2b", "2a", "3a", "3b", "4b", "4a"]);
}

#[test]
fn metarates_asks_the_kernel_for_what_it_tells() {
    for (words, place) in [("", "/shared/f"), ("--own", "/own-")] {
        let dir = TempDir::new().unwrap();
        let words = format!("--files 25 --small 300 {words}");
        let (report, kernel) = Witness::watch(&options(suite::<Metarates>(&words), 3, dir.path()));
        for row in &report.rows {
            assert_eq!(row.median.work.operations, 25, "{}", row.phase);
        }
        let told = |names: &[&str]| -> u64 {
            names.iter().flat_map(|name| report.samples(name, 0)).map(|figure| figure.work.operations).sum()
        };
        // A machine may have the older call, without `at`, or not.
        let asked = |calls: &[&str], words: &[&str]| -> u64 {
            let words = [&[place], words].concat();
            calls.iter().map(|call| kernel.count(call, &words)).sum()
        };
        let creates = told(&["create", "create+write"]);
        assert_eq!(asked(&["open", "openat"], &["O_CREAT|O_EXCL"]), creates);
        let reads = told(&["open", "read", "read again", "read cold"]);
        assert_eq!(asked(&["open", "openat"], &["O_RDONLY"]), reads);
        let stats = told(&["stat", "stat again", "stat cold"]);
        assert_eq!(asked(&["newfstatat", "fstatat64"], &["AT_SYMLINK_NOFOLLOW"]), stats);
        assert_eq!(asked(&["utimensat"], &[]), told(&["utime"]));
        // Those that were written are removed in a phase that tells nothing.
        assert_eq!(asked(&["unlink", "unlinkat"], &[]), 25 + told(&["unlink"]));
        assert_eq!(kernel.sum("write", &[place]), 25 * 300);
        assert_eq!(kernel.sum("read", &[place]), 300 * told(&["read", "read again", "read cold"]));
        assert!(report.original[0].starts_with("3 processes, 25 files, "));
    }
}

#[test]
fn io_moves_the_bytes_that_it_tells() {
    let dir = TempDir::new().unwrap();
    let (report, kernel) = Witness::watch(&options(suite::<Io>("--large 3M --random 20"), 2, dir.path()));
    let sum = |names: &[&str], of: fn(&cofs_bench::Figure) -> u64| -> u64 {
        names.iter().flat_map(|name| report.samples(name, 0)).map(of).sum()
    };
    let (writes, reads) =
        (["write", "rewrite", "random write"], ["read", "read cold", "random read", "random read cold"]);
    // Of each process: three pieces and an fsync.
    assert_eq!(figure(&report, "write").work.operations, 2 * 4);
    assert_eq!(kernel.sum("pwrite64", &["/large-"]), sum(&writes, |figure| figure.work.bytes));
    assert_eq!(kernel.sum("pread64", &["/large-"]), sum(&reads, |figure| figure.work.bytes));
    assert_eq!(kernel.count("pread64", &["/large-"]), sum(&reads, |figure| figure.work.operations));
    let fsyncs = kernel.count("fsync", &["/large-"]);
    assert_eq!(fsyncs, 2 * 3);
    assert_eq!(
        kernel.count("pwrite64", &["/large-"]) + fsyncs,
        sum(&writes, |figure| figure.work.operations)
    );
}

#[test]
fn tools_go_through_the_whole_tree() {
    let dir = TempDir::new().unwrap();
    let words = "--files 25 --per-directory 10";
    let mut options = options(suite::<Tree>(words), 1, dir.path());
    options.cold = false;
    let (report, kernel) = Witness::watch(&options);
    let phases: Vec<&str> = report.rows.iter().map(|row| row.phase.as_str()).collect();
    assert_eq!(phases, ["make", "ls -lR", "find", "du", "rm -rf"]);
    // Made twice: rm -rf cold removes what was made, warm too, as something must be there to be removed.
    let times = 2;
    assert_eq!(kernel.count("openat", &["/f0-", "O_CREAT"]), times * 25);
    assert_eq!(kernel.count("mkdir", &["/tree/d"]), times * 3);
    assert_eq!(kernel.count("unlinkat", &["f0-"]), times * 25);
    // ls -l looks at each file by its name, du within its directory.
    for tool in ["ls", "find", "du", "rm"] {
        assert!(kernel.count("execve", &[&format!("/{tool}\"")]) >= 1, "{tool} was not run");
    }
    assert_eq!(entries(dir.path()), 0);
    options.suite = suite::<Tree>(&format!("{words} --tools find"));
    let phases: Vec<String> = measured(&options).rows.into_iter().map(|row| row.phase).collect();
    assert_eq!(phases, ["make", "find"]);
    assert_eq!(entries(dir.path()), 0);
    options.seconds = Some(1.0);
    assert!(why_not(&options).contains("--seconds does not bound tree: --files does"));
}

#[test]
fn an_epoch_reads_every_file_once_in_an_order_of_its_own() {
    let dir = TempDir::new().unwrap();
    let words = "-n 50 --per-directory 7 --least 1K --most 4K";
    let mut options = options(suite::<Dataset>(words), 3, dir.path());
    options.cold = false;
    let (report, kernel) = Witness::watch(&options);
    let epochs = ["read", "read again"];
    for phase in ["make", "read", "read again"] {
        assert_eq!(figure(&report, phase).work.operations, 50, "{phase}");
        assert_eq!(figure(&report, phase).work.bytes, figure(&report, "make").work.bytes, "{phase}");
    }
    assert_eq!(kernel.sum("write", &["/class-"]), figure(&report, "make").work.bytes);
    assert_eq!(kernel.sum("read", &["/class-"]), 2 * figure(&report, "make").work.bytes);
    for number in 0..50 {
        let file = format!("/{number:09}.bin\"");
        assert_eq!(kernel.count("openat", &[&file, "O_CREAT"]), 1, "{file}");
        assert_eq!(kernel.count("openat", &[&file, "O_RDONLY"]), epochs.len() as u64, "{file}");
    }
    let orders = kernel.order("openat", &["/class-", "O_RDONLY"]);
    // Of each process about 17 in each epoch; in the same order in both they would repeat.
    let repeats =
        orders.iter().filter(|of| of.len() % 2 == 0 && of[..of.len() / 2] == of[of.len() / 2..]).count();
    assert!(repeats < orders.len(), "{orders:?}");
    assert!(orders.iter().any(|of| !of.is_sorted()), "in order of their names");
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn time_bounds_a_data_set_and_its_epochs_read_what_was_made() {
    let dir = TempDir::new().unwrap();
    let mut options = options(suite::<Dataset>("-n 1000000 --least 8 --most 8"), 2, dir.path());
    options.seconds = Some(0.2);
    let report = measured(&options);
    let made = figure(&report, "make").work.operations;
    assert!((2..1_000_000).contains(&made), "{made}");
    assert!((1..=made).contains(&figure(&report, "read").work.operations));
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn a_source_tree_is_compiled_once_and_then_not_again() {
    let dir = TempDir::new().unwrap();
    let words = "-n 6 --per-directory 4 -j 2";
    let (report, kernel) = Witness::watch(&options(suite::<Source>(words), 1, dir.path()));
    let phases: Vec<&str> = report.rows.iter().map(|row| row.phase.as_str()).collect();
    assert_eq!(phases, ["unpack", "compile", "compile nothing", "clean", "remove"]);
    for module in 0..6 {
        let object = format!("m{module}.o\"");
        assert_eq!(kernel.count("openat", &[&object, "O_CREAT"]), 1, "{object}");
        // Written for the archive, and unpacked from it.
        assert_eq!(kernel.count("openat", &[&format!("m{module}.c\""), "O_CREAT"]), 2, "{object}");
    }
    // To be compiled, and to be verified.
    assert_eq!(kernel.count("execve", &["./program\""]), 1);
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn a_python_environment_is_imported_whole() {
    let dir = TempDir::new().unwrap();
    let mut options = options(suite::<Python>("-n 3 --modules 4 --paths 2"), 1, dir.path());
    options.cold = false;
    let (report, kernel) = Witness::watch(&options);
    let phases: Vec<&str> = report.rows.iter().map(|row| row.phase.as_str()).collect();
    assert_eq!(phases, ["make", "import first", "import", "remove"]);
    for package in 0..3 {
        for module in 0..4 {
            let place = format!("/package{package}/");
            let (code, compiled) = (format!("module{module}.py\""), format!("module{module}.cpython-"));
            // The first import reads the source, the other one the byte code that the first has written.
            let sources = kernel.count("openat", &[&place, &code, "O_RDONLY"]);
            let byte_code = kernel.count("openat", &[&place, &compiled, ".pyc\"", "O_RDONLY"]);
            assert_eq!((sources, byte_code), (1, 1), "{place}{code}");
        }
    }
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn a_failing_phase_is_named() {
    let dir = TempDir::new().unwrap();
    let mut options = options(suite::<Metarates>("--files 25"), 3, dir.path());
    options.directory = dir.path().join("absent");
    assert!(why_not(&options).contains("absent"));
    options.directory = dir.path().to_owned();
    options.launcher.program = "/bin/false".into();
    assert!(run(&options, &mut |_| {}).is_err());
}

#[test]
fn a_directory_that_holds_something_is_refused_and_left_as_it_is() {
    let dir = TempDir::new().unwrap();
    let mut options = options(suite::<Metarates>("--files 25"), 3, dir.path());
    options.versus = Some(dir.path().join("other"));
    std::fs::create_dir(dir.path().join("other")).unwrap();
    assert!(why_not(&options).contains("not empty"));
    options.beside = true;
    measured(&options);
    options.beside = false;
    options.directory = dir.path().join("other");
    std::fs::create_dir(dir.path().join("other/cofs-bench-1")).unwrap();
    assert!(why_not(&options).contains("cofs-bench-1"));
    assert_eq!(entries(dir.path()), 1);
}

#[test]
fn what_runs_left_is_listed_and_goes_only_when_that_is_said() {
    let dir = TempDir::new().unwrap();
    let theirs = dir.path().join("cofs-bench.txt");
    std::fs::write(&theirs, "mine").unwrap();
    let made = ["cofs-bench-77", "cofs-bench-mdtest"].map(|name| dir.path().join(name));
    for directory in &made {
        std::fs::create_dir_all(directory.join("deep/er")).unwrap();
        std::fs::write(directory.join("deep/file"), "x").unwrap();
    }
    assert_eq!(cofs_bench::left(dir.path()).unwrap(), made);
    assert!(made.iter().all(|directory| directory.join("deep/file").exists()));
    assert_eq!(cofs_bench::clean(dir.path()).unwrap(), made);
    assert_eq!(entries(dir.path()), 1);
    assert!(theirs.exists());
}

#[test]
fn what_cannot_be_is_refused_first() {
    refused::<Io>(&[("--large 1000T", 3, "not enough space"), ("--large 1K", 1, "at least 1M")]);
    refused::<Metarates>(&[("--files 1125899906842624", 3, "not enough"), ("--small 2G", 1, "at most 1G")]);
    refused::<Tree>(&[("--files 1125899906842624", 1, "not enough inodes")]);
    refused::<Dataset>(&[
        ("--least 8K --most 4K", 1, "--least cannot be more than --most"),
        ("--least 4", 1, "at least 8"),
        ("--most 2G", 1, "at most 1G"),
        ("-n 1000000 --least 1G --most 1G", 1, "not enough space"),
    ]);
    refused::<Python>(&[(
        "--python no-such-python",
        1,
        "python runs no-such-python, which is not installed",
    )]);
}
