//! list: cookies, batches, collisions.

use std::collections::BTreeSet;

use cofs_types::limits;

use super::*;
use crate::ListedEntry;

impl World {
    /// One page of at most `max` entries: names and the cookie behind the last.
    fn page(&self, dir: InodeId, cookie: u64, max: usize, with_nodes: WithNodes) -> (Vec<String>, u64) {
        let (mut names, mut last) = (Vec::new(), cookie);
        self.ns
            .list(dir, cookie, with_nodes, max + 1, &mut |entry| {
                assert!(entry.cookie > last.max(2) && entry.cookie < 1 << 63);
                let wanted = match with_nodes {
                    WithNodes::None => false,
                    WithNodes::Directories => entry.kind == FileKind::Directory,
                    WithNodes::All => true,
                };
                assert_eq!(entry.node.is_some(), wanted);
                if names.len() == max {
                    return false;
                }
                if let Some(node) = entry.node {
                    assert_eq!(node, self.ns.node(entry.ino).unwrap());
                }
                names.push(String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
                last = entry.cookie;
                true
            })
            .unwrap();
        (names, last)
    }

    /// All pages; `between` runs after each.
    fn pages(&self, dir: InodeId, max: usize, mut between: impl FnMut(&[String])) -> Vec<String> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let with_nodes = [WithNodes::None, WithNodes::Directories, WithNodes::All][all.len() % 3];
            let (names, next) = self.page(dir, cookie, max, with_nodes);
            if names.is_empty() {
                return all;
            }
            between(&names);
            all.extend(names);
            cookie = next;
        }
    }
}

fn fill(w: &World, files: usize) -> (InodeId, BTreeSet<String>) {
    let d = w.dir(ROOT, "d");
    let names: BTreeSet<String> = (0..files).map(|n| format!("name{n}")).collect();
    names.iter().enumerate().for_each(|(n, name)| {
        if n % 10 == 0 {
            w.dir(d, name)
        } else {
            w.file(d, name)
        };
    });
    (d, names)
}

#[test]
fn every_entry_is_listed_once_whatever_the_page() {
    let w = World::new();
    let files = limits::LIST_BATCH_MAX + 3;
    let (d, names) = fill(&w, files);
    for max in [1, 7, limits::LIST_BATCH_MAX - 1, limits::LIST_BATCH_MAX, files, files + 1] {
        let listed = w.pages(d, max, |_| {});
        assert_eq!(listed.len(), files, "pages of {max}");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    }
    w.audit();
}

#[test]
fn what_stands_all_the_while_is_listed_once_though_the_directory_is_emptied_behind() {
    let w = World::new();
    let (d, names) = fill(&w, 300);
    let listed = w.pages(d, 11, |page| {
        for n in page {
            w.remove(d, n);
        }
    });
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    w.ns.rmdir(&C, at(9), ROOT, name("d")).unwrap();
    w.audit();
}

#[test]
fn names_of_one_hash_are_all_there_listed_once_and_removed_in_any_order() {
    for hash in [
        (|_: &[u8; 16], _: &[u8]| 0) as fn(&[u8; 16], &[u8]) -> u64,
        |_, name| name.len() as u64,
        |_, name| u64::from(name[name.len() - 1]) * 4,
        |_, _| u64::MAX,
    ] {
        let w = World::with_hash(hash);
        let (d, names) = fill(&w, 60);
        assert_eq!(w.pages(d, 7, |_| {}).into_iter().collect::<BTreeSet<_>>(), names);
        // Holes in the chains, and new names in the holes.
        let (gone, kept): (Vec<_>, Vec<_>) = names.iter().partition(|n| n.ends_with(['1', '4', '7']));
        for n in &gone {
            w.remove(d, n);
            fails(w.find(d, n), FsError::NotFound);
        }
        for n in &kept {
            w.find(d, n).unwrap();
        }
        for n in &gone {
            w.file(d, n);
        }
        for (n, to) in gone.iter().zip(&kept) {
            let moved = w.find(d, n).unwrap();
            let from = (d, name(n));
            w.ns.rename(&C, at(9), from, (d, name("new")), cofs_types::RenameMode::Replace).unwrap();
            assert_eq!(w.find(d, "new").unwrap(), moved, "{n} {to}");
            w.ns.rename(&C, at(9), (d, name("new")), from, cofs_types::RenameMode::Replace).unwrap();
        }
        let listed = w.pages(d, 5, |page| {
            for n in page {
                w.remove(d, n);
            }
        });
        assert_eq!(listed.len(), 60);
        w.ns.rmdir(&C, at(9), ROOT, name("d")).unwrap();
        w.audit();
    }
}

#[test]
fn no_more_is_visited_than_was_asked_for() {
    let w = World::new();
    let (d, _) = fill(&w, 20);
    for max in [0, 1, 7, 20, 21] {
        let mut visited = 0;
        let mut visit = |_: &ListedEntry<'_>| {
            visited += 1;
            true
        };
        w.ns.list(d, 0, WithNodes::All, max, &mut visit).unwrap();
        assert_eq!(visited, max.min(20));
    }
}
