//! Ties the list of verbs in `docs/design/namespace.md`, whose failpoints a crash test sweeps, to the code.

use std::{collections::BTreeSet, fs, path::Path};

const PAGE: &str = include_str!("../../../docs/design/namespace.md");

/// The names in `verb!("...")`, tests left out, and `read`, which never commits.
fn verbs(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                verbs(&path, found);
            }
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for rest in source.split("verb!(\"").skip(1) {
            found.insert(rest.split('"').next().unwrap().to_owned());
        }
    }
    found.remove("read");
}

#[test]
fn the_page_names_every_verb_that_commits() {
    let mut found = BTreeSet::new();
    verbs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let block = PAGE.split("```verbs").nth(1).unwrap().split("```").next().unwrap();
    let page: BTreeSet<String> = block.split_whitespace().map(str::to_owned).collect();
    assert_eq!(page, found);
}
