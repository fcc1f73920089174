//! Round trips, and decoders that meet any bytes.

use bytes::Bytes;
use cofs_types::{FileKind, InodeId, Layout, Name, ObjectId, Timestamp, XattrName, limits};
use proptest::{collection::vec, option, prelude::*};

use super::*;

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..Timestamp::NANOS_PER_SEC).prop_map(|(secs, nanos)| Timestamp::new(secs, nanos).unwrap())
}

fn ino() -> impl Strategy<Value = InodeId> {
    (1..=u64::MAX).prop_map(|n| InodeId::new(n).unwrap())
}

fn kind() -> impl Strategy<Value = FileKind> {
    (1u8..=7).prop_map(|byte| FileKind::from_byte(byte).unwrap())
}

fn file_name() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..=limits::NAME_BYTES_MAX).prop_filter("a name", |bytes| Name::new(bytes).is_ok())
}

fn small_xattrs() -> impl Strategy<Value = SmallXattrs> {
    vec((vec(1u8.., 1..=255), vec(any::<u8>(), 0..=256)), 0..6).prop_map(|all| {
        all.iter().fold(SmallXattrs::default(), |list, (name, value)| {
            list.with(XattrName::new(name).unwrap(), Some(value))
        })
    })
}

prop_compose! {
    fn inode()(
        kind in kind(), permissions in 0u16..=0o7777, numbers in any::<[u32; 5]>(), size_bytes in any::<u64>(),
        times in [time(), time(), time(), time()], same_times in any::<bool>(), parent in option::of(ino()),
        object in option::of(any::<u64>()), marks in any::<[bool; 2]>(), target in vec(any::<u8>(), 0..99),
        xattrs in small_xattrs(),
    ) -> Inode {
        let [nlink, uid, gid, rdev, large_xattrs] = numbers;
        let layout = object.map_or(Layout::Inline, |raw| Layout::Object(ObjectId::from_raw(raw)));
        let size_max = match (kind, layout) {
            (FileKind::Regular, Layout::Inline) => u64::from(limits::INLINE_BYTES_LIMIT),
            (FileKind::Regular, _) => limits::FILE_BYTES_MAX,
            _ => 0,
        };
        let [btime, atime, mtime, ctime] = if same_times { [times[0]; 4] } else { times };
        Inode {
            size_bytes: size_bytes.min(size_max), blocks_512: if object.is_some() { size_bytes } else { 0 },
            kind, permissions, nlink, uid, gid, rdev, atime, mtime, ctime, btime, parent, layout,
            writing: marks[0], linkable: marks[1], target: target.into(), xattrs, large_xattrs,
        }
    }
}

proptest! {
    #[test]
    fn an_inode_is_read_as_it_was_written(inode in inode()) {
        let value = Bytes::from(inode.encode());
        prop_assert_eq!(Inode::decode(&value).unwrap(), inode);
        // Cut short, or with more behind it, it is refused.
        prop_assert!(Inode::decode(&value.slice(..value.len() - 1)).is_err());
        prop_assert!(Inode::decode(&[&value[..], b"x"].concat()).is_err());
    }

    #[test]
    fn a_damaged_inode_is_refused_or_read_as_another(inode in inode(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut value = inode.encode();
        *at.get_mut(&mut value) ^= 1u8 << bit;
        if let Ok(read) = Inode::decode(&value) {
            prop_assert_eq!(read.encode(), value, "one value has one form");
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written(
        name in file_name(), ino in ino(), kind in kind(), continues in any::<bool>(), stands in any::<bool>(),
    ) {
        let occupant = stands.then_some(Occupant { name: Name::new(&name).unwrap(), ino, kind });
        let record = EntryRecord { occupant, continues };
        let value = record.encode();
        prop_assert_eq!(EntryRecord::decode(&value).unwrap(), record);
    }

    #[test]
    fn a_shard_and_the_header_are_read_as_they_were_written(
        subdirectories in any::<u32>(), times in option::of((time(), time())), files in any::<u64>(),
        clean in any::<bool>(), exact in any::<bool>(), inline_bytes_max in 0..=limits::INLINE_BYTES_LIMIT, hash_key in any::<[u8; 16]>(),
    ) {
        let times = times.map(|(mtime, ctime)| Times { mtime, ctime });
        let shard = Shard { subdirectories, times };
        prop_assert_eq!(Shard::decode(&shard.encode()).unwrap(), shard);
        let counts = Counts { files, clean, exact };
        prop_assert_eq!(Counts::decode(&counts.encode()).unwrap(), counts);
        let volume = Volume { options: crate::VolumeOptions { inline_bytes_max, hash_key } };
        prop_assert_eq!(Volume::decode(&volume.encode()).unwrap(), volume);
        prop_assert_eq!(decode_number(&encode_number(files)).unwrap(), files);
    }

    #[test]
    fn a_key_is_read_as_it_was_written(
        ino in ino(), slot in any::<u64>(), chunk in any::<u32>(), shard in any::<u16>(), name in vec(1u8.., 1..=255),
    ) {
        let name = XattrName::new(&name).unwrap();
        let object = ObjectId::from_raw(slot);
        let parsed = |key: &[u8], expected: Key<'_>| assert_eq!(Key::parse(key).unwrap(), expected);
        parsed(&key::entry(ino, slot), Key::Entry { dir: ino, slot });
        parsed(&key::inode(ino), Key::Inode(ino));
        parsed(&key::inline(ino, chunk), Key::Inline { ino, chunk });
        parsed(&key::xattr(ino, name), Key::Xattr { ino, name });
        parsed(&key::shard(ino, shard), Key::Shard { dir: ino, shard });
        parsed(&key::writing(ino), Key::Writing(ino));
        parsed(&key::unlinked(ino), Key::Unlinked(ino));
        parsed(&key::reclaim(object), Key::Reclaim(object));
        for part in [HeaderPart::Volume, HeaderPart::Epoch, HeaderPart::Inodes, HeaderPart::Counts, HeaderPart::PoolEnds] {
            parsed(&key::header(part), Key::Header(part));
        }
        let range = ranges::entries(ino, 0);
        let key = key::entry(ino, slot).to_vec();
        prop_assert!(range.start <= key && key < range.end);
        prop_assert!(ranges::everything().start <= key && key < ranges::everything().end);
    }

    #[test]
    fn any_bytes_are_a_value_or_refused(bytes in vec(any::<u8>(), 0..200), versioned in any::<bool>()) {
        let mut bytes = bytes;
        if let (true, Some(first)) = (versioned, bytes.first_mut()) {
            *first = 1;
        }
        let _ = Key::parse(&bytes);
        let _ = Volume::decode(&[b"cofs", &bytes[..]].concat());
        let _ = (Counts::decode(&bytes), decode_number(&bytes), decode_chunk(&bytes, 100));
        if let Ok(ends) = decode_pool_ends(&bytes) {
            prop_assert_eq!(&encode_pool_ends(&ends), &bytes);
        }
        if let Ok(shard) = Shard::decode(&bytes) {
            prop_assert_eq!(&shard.encode(), &bytes);
        }
        if let Ok(entry) = EntryRecord::decode(&bytes) {
            prop_assert_eq!(&entry.encode(), &bytes);
        }
        let _ = SmallXattrs::parse(bytes.clone().into());
        if let Ok(inode) = Inode::decode(&bytes) {
            prop_assert_eq!(inode.encode(), bytes);
        }
    }

    #[test]
    fn small_attributes_are_a_map(ops in vec((0u8..9, option::of(vec(any::<u8>(), 0..300))), 0..30)) {
        let (mut list, mut model) = (SmallXattrs::default(), std::collections::BTreeMap::new());
        for (n, value) in ops {
            let name = [b'n', n + 1];
            list = list.with(XattrName::new(&name).unwrap(), value.as_deref());
            match value {
                Some(value) => drop(model.insert(name, value)),
                None => drop(model.remove(&name)),
            }
            prop_assert_eq!(&SmallXattrs::parse(list.packed().to_vec().into()).unwrap(), &list);
        }
        prop_assert!(list.iter().eq(model.iter().map(|(n, v)| (&n[..], &v[..]))));
        for (name, value) in &model {
            prop_assert_eq!(&list.get(XattrName::new(name).unwrap()).unwrap()[..], &value[..]);
        }
    }
}

#[test]
fn keys_stand_in_the_order_of_a_listing() {
    let dir = |n| InodeId::new(n).unwrap();
    assert!(key::entry(dir(1), 256) > key::entry(dir(1), 255));
    assert!(key::entry(dir(256), 0) > key::entry(dir(255), u64::MAX));
    assert!(key::inline(dir(1), 256) > key::inline(dir(1), 255));
}
