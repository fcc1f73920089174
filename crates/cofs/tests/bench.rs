//! `cofs bench` as a person uses it: results go to a file and become a page; what a failed run left is listed, and goes when
//! that is said.

mod common;

use std::fs;

use common::{cofs, path_str, run, scratch, wait_for};

#[test]
fn a_profile_becomes_a_score_and_a_page() {
    let root = scratch();
    let (a, b, results, page) = (
        path_str(&root, "a"),
        path_str(&root, "b"),
        path_str(&root, "results"),
        path_str(&root, "page.html"),
    );
    [&a, &b].into_iter().for_each(|directory| fs::create_dir(directory).unwrap());
    let line = ["bench", "suite", "--profile", "trial", "-p", "2", "-i", "1", &a, "--vs", &b];
    let table = run(&line);
    let last = table.lines().last().unwrap();
    assert!(last.starts_with("score ") && last.split_whitespace().count() == 4, "{table}");
    let json = run(&[&line[..], &["--output", "json"]].concat());
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["scores"].as_array().unwrap().len(), 12);
    fs::write(&results, json).unwrap();
    run(&["bench", "report", &results, "-o", &page]);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("suite: ior-easy-write") && text.contains("<svg") && text.contains("score"));
    assert!([a, b].iter().all(|directory| fs::read_dir(directory).unwrap().count() == 0));
}

#[test]
fn a_person_reads_what_was_measured_and_how() {
    let root = scratch();
    let directory = root.path().to_str().unwrap();
    // mdtest's own letter for the directory.
    let table = run(&["bench", "mdtest", "-n", "4", "-w", "64K", "-i", "1", "-p", "2", "-d", directory]);
    assert!(
        table.starts_with("mdtest: ") && table.contains("write_bytes 64 KiB; 2 processes, median of 1\n"),
        "{table}"
    );
    let heading = table.lines().find(|line| line.starts_with("phase")).unwrap();
    assert!(heading.ends_with(" skew") && table.contains("\nSUMMARY rate: (of 1 iterations)\n"), "{table}");
    for words in [&["bench", "mdtest", "-n", "4", "-d", directory, directory][..], &["bench", "mdtest"]] {
        assert_eq!(cofs(words).output().unwrap().status.code(), Some(2));
    }
}

#[test]
fn what_cannot_be_measured_is_told_in_one_line_and_nothing_is_written() {
    let root = scratch();
    let directory = root.path().to_str().unwrap();
    fs::create_dir(root.path().join("cofs-bench-1")).unwrap();
    for (words, why) in [
        (&["suite", directory][..], "cofs bench clean"),
        (&["suite", "--seconds", "1", directory], "--profile says how much is done"),
        (&["tree", "--seconds", "1", directory], "--files does"),
        (&["btio", "-p", "3", directory], "not a square"),
        (
            &["metarates", "--rank", "0", "--size", "2", "--rendezvous", "a:99999", directory],
            "\"a:99999\" is no place to meet at",
        ),
        (&["report", "/nonexistent"], "/nonexistent"),
        (&["metarates", "--beside", "/proc"], "; "),
        (&["metarates", "/dev/null"], "; name one"),
        (&["clean", "/dev/null"], "; name one"),
    ] {
        let output = cofs(&[&["bench"], words].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.trim_end().lines().count() == 1, "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
        assert_eq!(said.matches("bench: ").count(), 1, "who speaks is said once: {said}");
        assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
    }
    let left = run(&["bench", "clean", "--list", directory]);
    assert!(left.ends_with("/cofs-bench-1\n") && root.path().join("cofs-bench-1").exists());
    assert_eq!(run(&["bench", "clean", directory]), left);
    assert_eq!(fs::read_dir(directory).unwrap().count(), 0);
}

#[test]
fn what_a_run_works_in_that_goes_on_is_not_cleaned_away() {
    let root = scratch();
    let directory = root.path().to_str().unwrap();
    let mut child = cofs(&["bench", "metarates", directory, "--files", "1000000", "--quiet"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for("its directory", || fs::read_dir(&root).unwrap().next().is_some());
    refused_alone(&["bench", "clean", directory], &child.id().to_string());
    child.kill().unwrap();
    child.wait().unwrap();
    run(&["bench", "clean", directory]);
    assert!(fs::read_dir(&root).unwrap().next().is_none());
}

/// As `refused`, beside one who changes what is there.
fn refused_alone(arguments: &[&str], word: &str) {
    let output = cofs(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("goes on") && said.contains(word), "{said}");
}
