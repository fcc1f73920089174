//! mdtest does what it says: no operation more, none less. The witnesses are strace and what stands in the
//! directory.

mod common;

use cofs_bench::Mdtest;
use common::{Witness, figure, measured, names, options, refused, suite};
use tempfile::TempDir;

#[test]
fn every_operation_that_is_told_was_done() {
    let dir = TempDir::new().unwrap();
    // 7 directories, 3 items of each of 2 processes in each.
    let options = options(suite::<Mdtest>("-I 3 -z 2 -b 2 -w 100 -e 60 -y -N 1 -R"), 2, dir.path());
    let (report, kernel) = Witness::watch(&options);
    let file = "/file.mdtest.";
    for (phase, call, words, operations) in [
        ("tree creation", "mkdir", &["mdtest_tree"][..], 7 + 42),
        ("directory creation", "mkdir", &["/dir.mdtest."], 42),
        ("directory stat", "statx", &["/dir.mdtest."], 42),
        ("directory rename", "rename", &["/dir.mdtest."], 42),
        ("directory removal", "rmdir", &["/dir.mdtest."], 42),
        ("file creation", "openat", &[file, "O_CREAT"], 42),
        ("file stat", "statx", &[file, "AT_FDCWD"], 42),
        ("file read", "openat", &[file, "O_RDONLY"], 42),
        ("file removal", "unlink", &[file], 42),
        ("tree removal", "rmdir", &["mdtest_tree"], 7 + 42),
    ] {
        assert_eq!(kernel.count(call, words), operations, "{phase} in the kernel");
        let told = if phase.starts_with("tree") { 7 } else { 42 };
        assert_eq!(figure(&report, phase).work.operations, told, "{phase} in the report");
    }
    assert_eq!(kernel.sum("pwrite64", &[file]), 42 * 100);
    assert_eq!(figure(&report, "file creation").work.bytes, 42 * 100);
    assert_eq!(kernel.count("fsync", &[file]), 42);
    assert_eq!(kernel.sum("pread64", &[file]), 42 * 60);
    assert_eq!(figure(&report, "file read").work.bytes, 42 * 60);
    assert!(figure(&report, "file read").work.counts.is_empty());
    assert_eq!(names(dir.path()).len(), 0);
}

const FILE: &str = "/file.mdtest.";
/// What mdtest does with a file, in this order, and the call in which its name stands.
const STEPS: [(&str, &[&str]); 4] = [
    ("openat", &[FILE, "O_CREAT"]),
    ("statx", &[FILE, "AT_FDCWD"]),
    ("openat", &[FILE, "O_RDONLY"]),
    ("unlink", &[FILE]),
];

/// Of each process, for each step: whose files it worked on, and the items in their order.
fn visited(words: &str, processes: usize) -> Vec<Vec<(Vec<usize>, Vec<u64>)>> {
    let dir = TempDir::new().unwrap();
    let (_, kernel) = Witness::watch(&options(suite::<Mdtest>(words), processes, dir.path()));
    let of = |line: &str| -> (usize, u64) {
        let name = line.split_once(FILE).unwrap().1.split('"').next().unwrap();
        let (owner, item) = name.split_once('.').unwrap();
        (owner.parse().unwrap(), item.parse().unwrap())
    };
    let (call, words) = STEPS[0];
    let workers = kernel.threads(call, words);
    let step = |worker: &Witness, (call, words): (&str, &[&str])| {
        let (mut owners, items): (Vec<usize>, Vec<u64>) =
            worker.order(call, words).concat().into_iter().map(of).unzip();
        owners.dedup();
        (owners, items)
    };
    let mut all: Vec<Vec<_>> =
        workers.iter().map(|worker| STEPS.iter().map(|of| step(worker, *of)).collect()).collect();
    all.sort();
    all
}

#[test]
fn files_are_looked_at_in_random_order_where_that_was_said() {
    let in_order: Vec<u64> = (0..40).collect();
    for steps in visited("-F -n 40", 2) {
        assert!(steps.iter().all(|(_, items)| *items == in_order));
    }
    let random = visited("-F -n 40 -R", 2);
    for steps in &random {
        let [created, looked_at, read, removed] = [0, 1, 2, 3].map(|step| steps[step].1.clone());
        assert!(created == in_order && removed == in_order);
        assert_eq!(looked_at, read, "one order for both");
        assert!(looked_at != in_order);
        let mut all = looked_at;
        all.sort();
        assert_eq!(all, in_order, "each once");
    }
    assert!(random[0][1].1 != random[1][1].1, "each process has its own");
    assert_eq!(visited("-F -n 40 -R", 2), random, "the same in every run");
    assert!(visited("-F -n 40 -R --random-seed 7", 2) != random);
}

#[test]
fn each_phase_works_on_the_files_of_a_process_further_on() {
    for (words, stride) in [("-F -n 3", 0), ("-F -n 3 -N 1", 1), ("-F -n 3 -N 3", 3)] {
        for (rank, steps) in visited(words, 5).into_iter().enumerate() {
            let owners: Vec<Vec<usize>> = steps.into_iter().map(|(owners, _)| owners).collect();
            let expected = [0, 1, 2, 3].map(|step| vec![(rank + step * stride) % 5]);
            assert_eq!(owners, expected, "{words}: process {rank}");
        }
    }
}

#[test]
fn the_tree_that_stands_is_mdtests_and_a_later_run_finds_it() {
    let dir = TempDir::new().unwrap();
    measured(&options(suite::<Mdtest>("-C -F -n 5 -z 1 -b 2 -L -u -N 1"), 2, dir.path()));
    let top = dir.path().join("cofs-bench-mdtest/test-dir.0-0");
    let mut expected = vec![format!("d {}", top.display()), format!("d {}", top.parent().unwrap().display())];
    for rank in 0..2 {
        let base = format!("{}/mdtest_tree.{rank}.0", top.display());
        expected.push(format!("d {base}"));
        for leaf in 1..3 {
            let leaf_dir = format!("{base}/mdtest_tree.{rank}.{leaf}");
            // Two of five in each leaf; with -N 1 a process works in the next one's tree.
            let items = (leaf * 2..leaf * 2 + 2)
                .map(|item| format!("f {leaf_dir}/file.mdtest.{}.{item}", (rank + 1) % 2));
            expected.extend(items);
            expected.push(format!("d {leaf_dir}"));
        }
    }
    expected.sort();
    assert!(names(dir.path()) == expected, "another tree stands");
    // Again is refused, as the files are still there.
    let error =
        cofs_bench::run(&options(suite::<Mdtest>("-C -F -n 5"), 2, dir.path()), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("cofs-bench-mdtest"));
    let report = measured(&options(suite::<Mdtest>("-T -E -F -n 5 -z 1 -b 2 -L -u -N 1"), 2, dir.path()));
    assert_eq!(figure(&report, "file stat").work.operations, 8);
    assert_eq!(names(dir.path()).len(), expected.len());
    let report = measured(&options(suite::<Mdtest>("-r -F -n 5 -z 1 -b 2 -L -u -N 1"), 2, dir.path()));
    assert_eq!(figure(&report, "file removal").work.operations, 8);
    assert_eq!(figure(&report, "tree removal").work.operations, 6);
    assert_eq!(names(dir.path()).len(), 0);
}

#[test]
fn directories_are_renamed_in_a_circle_and_all_names_stay() {
    let dir = TempDir::new().unwrap();
    // Two directories of the tree with three items of each process; the last but one, and with -N that of the next process.
    let words = "-D -I 3 -z 1 -b 1";
    measured(&options(suite::<Mdtest>(&format!("{words} -C")), 2, dir.path()));
    let before = names(dir.path());
    let again = options(suite::<Mdtest>(&format!("{words} -U -N 1")), 2, dir.path());
    let (report, kernel) = Witness::watch(&again);
    assert_eq!(names(dir.path()), before);
    let phases: Vec<&str> = report.rows.iter().map(|row| row.phase.as_str()).collect();
    assert_eq!(phases, ["directory rename"]);
    assert_eq!(figure(&report, "directory rename").work.operations, 12);
    let name = |path: &str| path.rsplit_once("/dir.mdtest.").unwrap().1.to_owned();
    let mut circles: Vec<Vec<(String, String)>> = Vec::new();
    for lines in kernel.order("rename", &["/dir.mdtest."]) {
        let paths = lines.iter().map(|line| line.split('"').collect::<Vec<_>>());
        circles.push(paths.map(|words| (name(words[1]), name(words[3]))).collect());
    }
    circles.sort();
    let expected = [0, 1].map(|owner| {
        let items = [0, 1, 2, 3, 4].map(|item| format!("{owner}.{item}"));
        let mut from = items.to_vec();
        from.push(format!("{owner}.0-XX"));
        let to = [vec![format!("{owner}.0-XX")], items.to_vec()].concat();
        from.into_iter().zip(to).collect::<Vec<_>>()
    });
    assert_eq!(circles, expected);
    // One directory goes nowhere.
    let alone = measured(&options(suite::<Mdtest>("-D -n 1"), 2, TempDir::new().unwrap().path()));
    assert!(alone.rows.iter().all(|row| row.phase != "directory rename"));
}

#[test]
fn the_hard_form_is_files_of_3901_bytes_in_one_directory() {
    let dir = TempDir::new().unwrap();
    let (report, kernel) = Witness::watch(&options(suite::<Mdtest>("--hard -n 10 -N 1 -X"), 3, dir.path()));
    let one = "test-dir.0-0/mdtest_tree.0/file.mdtest.";
    assert_eq!(kernel.count("openat", &[one, "O_CREAT"]), 30);
    assert_eq!(kernel.sum("pwrite64", &[one]), 30 * 3901);
    assert_eq!(kernel.sum("pread64", &[one]), 30 * 3901);
    assert!(report.rows.iter().all(|row| !row.phase.starts_with("directory")));
    assert!(figure(&report, "file read").work.counts.is_empty(), "verified");
    assert_eq!(report.options["mdtest"]["write_bytes"], 3901, "what is recorded is what was done");
}

#[test]
fn trees_are_as_many_as_n_and_i_say() {
    let dir = TempDir::new().unwrap();
    let (report, kernel) = Witness::watch(&options(suite::<Mdtest>("-F -n 12 -I 4"), 2, dir.path()));
    assert_eq!(figure(&report, "tree creation").work.operations, 3);
    for tree in 0..3 {
        let of_tree = format!("test-dir.0-{tree}/mdtest_tree.0/file.");
        assert_eq!(kernel.count("openat", &[&of_tree, "O_CREAT"]), 8);
        assert_eq!(kernel.count("statx", &[&of_tree]), 8);
        assert_eq!(kernel.count("unlink", &[&of_tree]), 8);
    }
}

#[test]
fn after_a_stonewall_all_have_as_many_files_as_the_fastest() {
    let dir = TempDir::new().unwrap();
    let report = measured(&options(suite::<Mdtest>("-C -T -F -n 100000000 -W 1"), 2, dir.path()));
    let created = figure(&report, "file creation");
    let files = names(dir.path()).iter().filter(|name| name.starts_with('f')).count() as u64;
    assert_eq!(created.work.operations, files);
    assert_eq!(created.processes[0].work.operations, created.processes[1].work.operations);
    assert_eq!(figure(&report, "file stat").work.operations, files);
    let at_wall = created.work.counts["stonewall items"];
    assert!(0 < at_wall && at_wall <= files, "{at_wall} of {files}");
    assert!(created.work.spans["stonewall"] >= 1.0);
    assert!(report.original[0].contains("File create (stonewall)"));
}

#[test]
fn bytes_that_are_not_those_written_are_counted() {
    let dir = TempDir::new().unwrap();
    measured(&options(suite::<Mdtest>("-C -F -n 4 -w 64"), 1, dir.path()));
    let base = dir.path().join("cofs-bench-mdtest/test-dir.0-0/mdtest_tree.0");
    std::fs::write(base.join("file.mdtest.0.1"), [7; 64]).unwrap();
    // Only the number of the item is right.
    let mut bytes = vec![0; 64];
    bytes[0] = 2;
    std::fs::write(base.join("file.mdtest.0.2"), bytes).unwrap();
    for (words, wrong) in [("-E -F -n 4 -e 64", 1), ("-E -F -n 4 -e 64 -X", 2)] {
        let report = measured(&options(suite::<Mdtest>(words), 1, dir.path()));
        assert_eq!(figure(&report, "file read").work.counts["verification errors"], wrong);
    }
}

#[test]
fn the_table_is_mdtests() {
    let dir = TempDir::new().unwrap();
    let mut options = options(suite::<Mdtest>("-n 5 -P"), 2, dir.path());
    options.repeats = 3;
    let report = measured(&options);
    let text = &report.original[0];
    assert!(text.starts_with("2 tasks, 10 files/directories\n\nSUMMARY rate: (of 3 iterations)\n"));
    assert!(text.contains("\nSUMMARY time: (of 3 iterations)\n"));
    // A title in 22 letters, and four numbers of 14.
    let lines = || text.lines().filter_map(|line| line.strip_prefix("   ")).filter(|line| line.contains('.'));
    assert!(lines().all(|line| line.len() == 22 + 4 * 15 && line[23..].split_whitespace().count() == 4));
    let titles: Vec<&str> = lines().map(|line| line[..22].trim()).collect();
    let expected = [
        "Directory creation",
        "Directory stat",
        "Directory rename",
        "Directory removal",
        "File creation",
        "File stat",
        "File read",
        "File removal",
        "Tree creation",
        "Tree removal",
    ];
    assert_eq!(titles, [expected, expected].concat());
}

#[test]
fn what_cannot_be_is_refused_first() {
    refused::<Mdtest>(&[
        ("", 2, "no items"),
        ("-n 3 -z 3 -b 2", 2, "no items"),
        ("-n 10 -I 3", 2, "multiple"),
        ("-n 10 -I 5 -u", 2, "not both"),
        ("-n 1 -e 10", 2, "-e cannot be more"),
        ("-n 1 -X", 2, "-X needs"),
        ("-n 1 -w 2G", 2, "at most 1G"),
        ("-n 8 -W 1 -z 1", 2, "-W works in one directory"),
        ("-n 8 -N 2", 2, "-N must be less"),
        ("-n 8 -U -F", 2, "-U renames directories"),
        ("-n 1 -U", 2, "-U needs two directories"),
        ("-I 1 -z 30 -b 3", 2, "too large"),
        ("-n 1000000000000000", 2, "not enough inodes"),
        ("-n 1000000 -w 1G", 2, "not enough space"),
        ("-r -n 1", 2, "no earlier run"),
    ]);
}
