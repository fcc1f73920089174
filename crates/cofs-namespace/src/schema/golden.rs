//! Ties `docs/design/format.md` to the code: every example there is made here, byte for byte.

use std::collections::BTreeMap;

use cofs_types::{FileKind, InodeId, Layout, Name, ObjectId, PoolEnd, PoolId, Timestamp, XattrName};

use super::*;
use crate::{Unsynced, VolumeOptions};

const PAGE: &str = include_str!("../../../../docs/design/format.md");

/// The page's examples: lines `name | hex`, in the blocks fenced as `golden`.
fn examples() -> BTreeMap<&'static str, String> {
    let blocks = PAGE.split("```golden\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let (name, hex) = line.split_once('|').expect("name | hex");
            (name.trim(), hex.split_whitespace().collect())
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn keys() -> Vec<(&'static str, Vec<u8>)> {
    let ino = InodeId::new(0x102).unwrap();
    let xattr = XattrName::new(b"user.a").unwrap();
    let home = NameHasher::new([7; 16]).home(Name::new(b"hello").unwrap());
    vec![
        ("entry key", key::entry(ino, home).to_vec()),
        ("inode key", key::inode(ino).to_vec()),
        ("inline key", key::inline(ino, 3).to_vec()),
        ("xattr key", key::xattr(ino, xattr)),
        ("shard key", key::shard(ino, 0).to_vec()),
        ("writing key", key::writing(ino).to_vec()),
        ("unlinked key", key::unlinked(ino).to_vec()),
        ("reclaim key", key::reclaim(ObjectId::from_raw(0x1_0002)).to_vec()),
        ("volume key", key::header(HeaderPart::Volume).to_vec()),
        ("epoch key", key::header(HeaderPart::Epoch).to_vec()),
        ("inodes key", key::header(HeaderPart::Inodes).to_vec()),
        ("counts key", key::header(HeaderPart::Counts).to_vec()),
        ("unlabelled key", key::header(HeaderPart::Unlabelled).to_vec()),
        ("pool ends key", key::header(HeaderPart::PoolEnds).to_vec()),
    ]
}

fn plain_inode() -> Inode {
    let mut inode =
        Inode::new(FileKind::Regular, 0o644, (1000, 100), Timestamp::new(1_700_000_000, 5).unwrap());
    (inode.nlink, inode.size_bytes) = (1, 300);
    inode
}

fn full_inode() -> Inode {
    let time = |secs| Timestamp::new(secs, 999_999_999).unwrap();
    Inode {
        atime: time(-1),
        mtime: time(1),
        ctime: time(2),
        rdev: 0x103,
        parent: InodeId::new(9),
        layout: Layout::Object(ObjectId::from_raw(0x1_0002)),
        blocks_512: 8,
        writing: true,
        linkable: true,
        target: "to".into(),
        xattrs: SmallXattrs::default().with(XattrName::new(b"user.a").unwrap(), Some(b"v")),
        large_xattrs: 2,
        ..plain_inode()
    }
}

fn pool_ends() -> [PoolEnd; 2] {
    [
        PoolEnd { pool: PoolId(0), end: 300, generation: 7 },
        PoolEnd { pool: PoolId(2), end: 4097, generation: 0 },
    ]
}

fn values() -> Vec<(&'static str, Vec<u8>)> {
    let name = Name::new(b"hello").unwrap();
    let occupant = Some(Occupant { name, ino: InodeId::new(0x102).unwrap(), kind: FileKind::Regular });
    let times = Some(Times::both(Timestamp::new(2, 3).unwrap()));
    let options = VolumeOptions { inline_bytes_max: 16_384, hash_key: [7; 16] };
    vec![
        ("entry", EntryRecord { occupant, continues: false }.encode()),
        ("entry in a chain", EntryRecord { occupant, continues: true }.encode()),
        ("entry vacant", EntryRecord { occupant: None, continues: true }.encode()),
        ("inode plain", plain_inode().encode()),
        ("inode full", full_inode().encode()),
        ("shard", Shard { subdirectories: 4, times }.encode()),
        ("shard without times", Shard { subdirectories: 4, times: None }.encode()),
        ("bytes", encode_chunk(b"abc")),
        ("mark", MARK.to_vec()),
        (
            "mark of a closed file",
            Writing::Closed(Unsynced { second: 300, run: 0x0102_0304_0506_0708 }).encode(),
        ),
        ("volume", Volume { options }.encode()),
        ("counts", Counts { files: 300, clean: true, exact: false }.encode()),
        ("number", encode_number(300)),
        ("pool ends", encode_pool_ends(&pool_ends())),
    ]
}

#[test]
fn the_page_shows_what_the_code_writes() {
    let mut page = examples();
    let mut wrong = String::new();
    for (name, bytes) in keys().into_iter().chain(values()) {
        if page.remove(name).as_deref() != Some(&hex(&bytes)) {
            wrong += &format!("{name:<20} | {}\n", hex(&bytes));
        }
    }
    assert!(wrong.is_empty(), "docs/design/format.md should say:\n{wrong}");
    assert!(page.is_empty(), "docs/design/format.md says more: {page:?}");
}

#[test]
fn what_the_page_shows_is_read() {
    Inode::decode(&full_inode().encode()).map(|inode| assert_eq!(inode, full_inode())).unwrap();
    assert_eq!(decode_pool_ends(&encode_pool_ends(&pool_ends())).unwrap(), pool_ends());
    for (_, key) in keys() {
        Key::parse(&key).unwrap();
    }
}
