//! The tree: how many directories, how many items in each, and where an item lies.
//!
//! Directories are numbered level by level from 0, the root; the children of `d` are `d * branch + 1` and those
//! after it. Items are numbered by directory: those of `d` begin at `d * per_directory`.

use std::path::{Path, PathBuf};

use rand::{SeedableRng, rngs::SmallRng, seq::SliceRandom};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Trees of this shape.
    pub trees: u64,
    /// Directories of a tree.
    pub directories: u64,
    /// Items of one process in a tree.
    pub items: u64,
    per_directory: u64,
    depth: u32,
    branch: u64,
    /// The first directory that has items.
    first: u64,
}

impl Shape {
    /// From mdtest's -n, -I, -z, -b and -L.
    ///
    /// Errors: there is nothing to do, or too much to count.
    pub fn new(
        items: u64,
        per_directory: u64,
        depth: u32,
        branch: u64,
        leaves: bool,
    ) -> Result<Self, String> {
        let large = || "the tree is too large".to_owned();
        let last_level = branch.checked_pow(depth).ok_or_else(large)?;
        let mut levels = (0..=depth).map(|level| branch.checked_pow(level));
        let directories = levels.try_fold(0u64, |sum, level| sum.checked_add(level?)).ok_or_else(large)?;
        let with_items = if leaves { last_level } else { directories };
        let (trees, per_directory) = match (items, per_directory) {
            (0, each) => (1, each),
            (all, 0) => (1, all / with_items.max(1)),
            (all, each) => (all / each, each),
        };
        let items = with_items.checked_mul(per_directory).ok_or_else(large)?;
        if trees == 0 || items == 0 {
            return Err("no items: give -n or -I, at least one for each directory of the tree".to_owned());
        }
        Ok(Self { trees, directories, items, per_directory, depth, branch, first: directories - with_items })
    }

    /// One directory with so many items.
    pub fn with_items(self, items: u64) -> Self {
        Self { items, per_directory: items, ..self }
    }

    pub fn directory_of(&self, item: u64) -> u64 {
        item / self.per_directory
    }

    /// All directories as they are made, parents first, depth first; or as they are removed, children first.
    pub fn tree(&self, make: bool) -> impl Iterator<Item = u64> {
        let mut all = self.depth_first();
        if !make {
            all.reverse();
        }
        all.into_iter()
    }

    /// Items as mdtest creates and removes them: directory by directory, depth first.
    pub fn by_directory(&self) -> Vec<u64> {
        let with_items = self.depth_first().into_iter().filter(|directory| *directory >= self.first);
        let each = self.per_directory;
        with_items.flat_map(|directory| directory * each..(directory + 1) * each).collect()
    }

    /// Items as mdtest looks at them: by number.
    pub fn in_order(&self) -> Vec<u64> {
        let begin = self.first * self.per_directory;
        (begin..begin + self.items).collect()
    }

    pub fn at_random(&self, seed: u64) -> Vec<u64> {
        let mut items = self.in_order();
        items.shuffle(&mut SmallRng::seed_from_u64(seed));
        items
    }

    /// Where directory `number` of the tree called `name` lies below `top`.
    pub fn path(&self, top: &Path, name: &str, number: u64) -> PathBuf {
        let mut numbers = vec![number];
        let mut directory = number;
        while directory > 0 {
            directory = (directory - 1) / self.branch;
            numbers.push(directory);
        }
        let mut path = top.to_owned();
        path.extend(numbers.iter().rev().map(|number| format!("{name}.{number}")));
        path
    }

    fn depth_first(&self) -> Vec<u64> {
        let mut all = Vec::new();
        let mut next = vec![(0, 0)];
        while let Some((directory, level)) = next.pop() {
            all.push(directory);
            if level < self.depth {
                let children = directory * self.branch + 1..=directory * self.branch + self.branch;
                next.extend(children.rev().map(|child| (child, level + 1)));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(items: u64, per_directory: u64, depth: u32, branch: u64, leaves: bool) -> Shape {
        Shape::new(items, per_directory, depth, branch, leaves).unwrap()
    }

    #[test]
    fn items_are_counted_as_mdtest_counts_them() {
        for ((n, i, z, b, leaves), (trees, directories, items)) in [
            ((10, 0, 0, 1, false), (1, 1, 10)),
            ((10, 0, 2, 2, false), (1, 7, 7)),
            ((10, 0, 2, 2, true), (1, 7, 8)),
            ((0, 3, 2, 2, false), (1, 7, 21)),
            ((0, 3, 2, 2, true), (1, 7, 12)),
            ((10, 0, 3, 1, false), (1, 4, 8)),
            ((12, 4, 0, 1, false), (3, 1, 4)),
        ] {
            let shape = shape(n, i, z, b, leaves);
            assert_eq!((shape.trees, shape.directories, shape.items), (trees, directories, items));
            let mut created = shape.by_directory();
            created.sort();
            assert_eq!(created, shape.in_order());
            assert_eq!(created.len() as u64, items);
        }
    }

    #[test]
    fn nothing_to_do_and_too_much_are_errors() {
        assert!(Shape::new(0, 0, 0, 1, false).is_err());
        assert!(Shape::new(6, 0, 2, 2, false).is_err());
        assert!(Shape::new(u64::MAX, 0, 64, 2, false).is_err());
        assert!(Shape::new(0, u64::MAX, 2, 2, false).is_err());
    }

    #[test]
    fn directories_lie_in_their_parents_and_are_made_after_them() {
        let shape = shape(0, 1, 2, 3, true);
        assert_eq!(shape.tree(true).take(6).collect::<Vec<_>>(), [0, 1, 4, 5, 6, 2]);
        assert_eq!(shape.path(Path::new("/x"), "t", 0), Path::new("/x/t.0"));
        assert_eq!(shape.path(Path::new("/x"), "t", 6), Path::new("/x/t.0/t.1/t.6"));
        assert_eq!(shape.path(Path::new("/x"), "t", 12), Path::new("/x/t.0/t.3/t.12"));
        assert_eq!(shape.directory_of(*shape.in_order().first().unwrap()), 4);
    }
}
