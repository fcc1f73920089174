//! What a directory holds, and whether that is what the model says.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path};

use crate::world::{File, Node, World};

#[derive(PartialEq, Eq, Debug)]
pub enum Seen {
    /// `inline`: it has no object, so that each of its changes was a commit.
    File {
        file: File,
        links: u64,
        inline: bool,
    },
    Directory,
    Symlink(String),
}

pub fn look(top: &Path) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    look_into(top, "", &mut seen);
    seen
}

fn look_into(top: &Path, below: &str, seen: &mut BTreeMap<String, Seen>) {
    for entry in fs::read_dir(top.join(below)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        let path = top.join(&name);
        let meta =
            fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{name} is listed, but: {error}"));
        let kind = if meta.is_dir() {
            look_into(top, &name, seen);
            Seen::Directory
        } else if meta.is_symlink() {
            Seen::Symlink(fs::read_link(&path).unwrap().into_os_string().into_string().unwrap())
        } else {
            let data = fs::read(&path).unwrap();
            assert_eq!(data.len() as u64, meta.len(), "{name}: stat and read disagree");
            let mtime = Some((meta.mtime(), meta.mtime_nsec() as u32));
            let file = File { data, mode: meta.mode() & 0o7777, attribute: attribute(&path), mtime };
            Seen::File { file, links: meta.nlink(), inline: is_inline(&path) }
        };
        assert!(seen.insert(name.clone(), kind).is_none(), "{name} is listed twice");
    }
}

fn attribute(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 70_000];
    let len = rustix::fs::getxattr(path, "user.test", &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// What `cofs info` says; elsewhere no file is.
fn is_inline(path: &Path) -> bool {
    let mut info = vec![0; 70_000];
    let Ok(len) = rustix::fs::getxattr(path, "cofs.info", &mut info[..]) else { return false };
    serde_json::from_slice::<serde_json::Value>(&info[..len]).unwrap()["layout"] == "inline"
}

/// Whether the directory is what the model says; if not, the first difference.
pub fn compare(world: &World, seen: &BTreeMap<String, Seen>) -> Result<(), String> {
    for (name, node) in &world.names {
        let found = seen.get(name).ok_or_else(|| format!("{name} is lost ({node:?})"))?;
        match (node, found) {
            (Node::Directory, Seen::Directory) => {}
            (Node::Symlink(target), Seen::Symlink(found)) if target == found => {}
            (Node::File(id), Seen::File { file, links, .. }) => {
                if *links != world.links(*id) {
                    return Err(format!("{name} has {links} links, not {}", world.links(*id)));
                }
                compare_file(&world.files[id], file).map_err(|why| format!("{name}: {why}"))?;
            }
            (node, found) => return Err(format!("{name} is {found:?}, not {node:?}")),
        }
    }
    match seen.keys().find(|name| !world.names.contains_key(*name)) {
        Some(name) => Err(format!("{name} is there and must not be")),
        None => Ok(()),
    }
}

fn compare_file(expected: &File, found: &File) -> Result<(), String> {
    if expected.mode != found.mode {
        return Err(format!("mode {:o}, not {:o}", found.mode, expected.mode));
    }
    if expected.attribute != found.attribute {
        return Err("another attribute".to_owned());
    }
    if expected.mtime.is_some() && expected.mtime != found.mtime {
        return Err(format!("mtime {:?}, not {:?}", found.mtime, expected.mtime));
    }
    if expected.data.len() != found.data.len() {
        return Err(format!("{} bytes, not {}", found.data.len(), expected.data.len()));
    }
    match expected.data.iter().zip(&found.data).position(|(a, b)| a != b) {
        Some(at) => Err(format!("differs from byte {at} of {}", expected.data.len())),
        None => Ok(()),
    }
}
