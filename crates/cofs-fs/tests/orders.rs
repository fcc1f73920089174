//! The table of orders and the sources name the same failpoints.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust source of the workspace's crates that is no test.
fn sources(directory: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !matches!(name, "tests" | "benches" | "target") {
                sources(&path, into);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            into.push(fs::read_to_string(&path).unwrap());
        }
    }
}

/// The string literals that follow `opening` in `text`.
fn literals<'a>(text: &'a str, opening: &str) -> impl Iterator<Item = &'a str> {
    text.split(opening).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

fn failpoints_in_sources() -> BTreeSet<String> {
    let mut texts = Vec::new();
    sources(&root().join("crates"), &mut texts);
    let mut names = BTreeSet::new();
    for text in &texts {
        names.extend(literals(text, "failpoint(").filter(|name| name.contains('.')).map(str::to_owned));
        // A transaction's verb; `read` is the verb of those that never commit.
        for verb in literals(text, "verb!(").filter(|verb| *verb != "read") {
            names.insert(format!("namespace.{verb}.before_commit"));
            names.insert(format!("namespace.{verb}.after_commit"));
        }
    }
    names
}

fn is_failpoint(word: &str) -> bool {
    word.split('.').count() == 3
        && ["cofs.", "fs.", "namespace.", "placement."].iter().any(|room| word.starts_with(room))
}

fn failpoints_in_page() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/design/orders.md")).unwrap();
    page.split('`').skip(1).step_by(2).filter(|word| is_failpoint(word)).map(str::to_owned).collect()
}

#[test]
fn every_failpoint_of_the_page_stands_in_the_sources_and_the_other_way_round() {
    let (page, sources) = (failpoints_in_page(), failpoints_in_sources());
    assert!(sources.len() > 60, "the sources are not read: {sources:?}");
    let missing: Vec<_> = sources.difference(&page).collect();
    let invented: Vec<_> = page.difference(&sources).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "not in the page: {missing:?}; not in the sources: {invented:?}"
    );
}
