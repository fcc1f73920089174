//! The names of the failpoints: those of the table of orders, which a test holds against the sources, both ways
//! (`cofs-fs/tests/orders.rs`).

/// `docs/design/orders.md`, as it was when this program was built.
const TABLE: &str = include_str!("../../../docs/design/orders.md");

/// Where each of the program's rooms begins its names.
const ROOMS: [&str; 4] = ["cofs.", "fs.", "namespace.", "placement."];

/// Names are what stands between backquotes and has a room and two more parts.
fn names() -> impl Iterator<Item = &'static str> {
    let is_name =
        |word: &&str| word.split('.').count() == 3 && ROOMS.iter().any(|room| word.starts_with(room));
    TABLE.split('`').skip(1).step_by(2).filter(is_name)
}

pub fn is_known(name: &str) -> bool {
    names().any(|known| known == name)
}

/// Which names there are that begin as this one does; where none does, where all stand.
pub fn near(name: &str) -> String {
    let begins = |parts: usize| {
        let start = name.split('.').take(parts).collect::<Vec<_>>().join(".") + ".";
        let mut found: Vec<_> = names().filter(|known| known.starts_with(&start)).collect();
        found.sort_unstable();
        found.dedup();
        (start, found)
    };
    [2, 1].map(begins).into_iter().find(|(_, found)| !found.is_empty()).map_or_else(
        || "docs/design/orders.md lists them".to_owned(),
        |(start, found)| format!("those of {start}* are {}", found.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        assert!(names().count() > 60);
        assert!(is_known("fs.create.committed") && is_known("namespace.create.after_commit"));
        // The first is the word of a sentence, the second a file's name.
        assert!(!is_known("before_commit") && !is_known("cofs.toml") && !is_known(""));
    }

    #[test]
    fn the_nearest_names_are_told() {
        assert_eq!(near("fs.create.comitted"), "those of fs.create.* are fs.create.committed");
        assert!(near("fs.creat.committed").contains("fs.unlink.committed"));
        assert!(near("nonsense").contains("orders.md"));
    }
}
