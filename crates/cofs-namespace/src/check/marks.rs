//! The passes over what belongs to inodes: inline data, large attributes, figures, marks.

use cofs_types::{FsResult, limits};

use super::{Pass, Problem, table::Flag};
use crate::{
    schema::{Key, MARK, Shard, Writing, decode_chunk, ranges},
    tables::labels::LABEL,
};

impl Pass<'_> {
    pub(super) fn marks(&mut self) -> FsResult<()> {
        let checker = self.checker;
        checker.scan(&ranges::writing(None), &mut |key, value| {
            self.mark(key, value, Flag::Writing);
            Ok(())
        })?;
        checker.scan(&ranges::unlinked(None), &mut |key, value| {
            self.mark(key, value, Flag::Unlinked);
            Ok(())
        })
    }

    fn mark(&mut self, key: &[u8], value: &[u8], flag: Flag) {
        let writing = if flag == Flag::Writing { Writing::decode(value).ok() } else { None };
        let readable = value == MARK || writing.is_some();
        let (Ok(Key::Writing(ino) | Key::Unlinked(ino)), true) = (Key::parse(key), readable) else {
            self.unreadable(key, value, "mark of an inode");
            return;
        };
        let index = self.table.find(ino);
        if index.is_some() && matches!(writing, Some(Writing::Closed(_))) {
            // Its record tells of no mark, nor need it.
            return;
        }
        if let Some(index) = index {
            self.table.set(index, flag);
        }
        let summary = &mut self.found.summary;
        match (flag, index) {
            (Flag::Writing, Some(_)) => summary.writing += 1,
            (_, Some(_)) => summary.unlinked += 1,
            (Flag::Writing, None) => self.found.add(Problem::Writing { ino, marked: true }),
            (_, None) => self.found.add(Problem::StrayUnlinked { ino }),
        }
    }

    pub(super) fn inlines(&mut self) -> FsResult<()> {
        let checker = self.checker;
        checker.scan(&ranges::inlines(), &mut |key, value| {
            let chunk = decode_chunk(value, limits::INLINE_CHUNK_BYTES);
            let (Ok(Key::Inline { ino, chunk }), Ok(bytes)) = (Key::parse(key), chunk) else {
                self.unreadable(key, value, "inline data");
                return Ok(());
            };
            self.found.summary.inline_chunks += 1;
            let room = self.table.find(ino).map_or(0, |index| self.table.inline_bytes(index, chunk));
            if room == 0 || bytes.len() > room {
                self.found.add(Problem::StrayInline { ino, chunk });
            }
            Ok(())
        })
    }

    pub(super) fn xattrs(&mut self) -> FsResult<()> {
        let checker = self.checker;
        checker.scan(&ranges::all_xattrs(), &mut |key, value| {
            let decoded = decode_chunk(value, limits::XATTR_VALUE_BYTES_MAX);
            let (Ok(Key::Xattr { ino, name }), Ok(_)) = (Key::parse(key), decoded) else {
                self.unreadable(key, value, "large extended attribute");
                return Ok(());
            };
            self.found.summary.large_xattrs += 1;
            if name.as_bytes() == LABEL {
                self.labelled.get_or_insert(ino);
            }
            let expected = self.table.find(ino).is_some_and(|i| self.table.has(i, Flag::LargeXattrs));
            if !expected {
                self.found.add(Problem::StrayXattr { key: key.to_vec() });
            }
            Ok(())
        })
    }

    pub(super) fn shards(&mut self) -> FsResult<()> {
        let checker = self.checker;
        checker.scan(&ranges::shards(), &mut |key, value| {
            let (Ok(Key::Shard { dir, shard }), Ok(figures)) = (Key::parse(key), Shard::decode(value)) else {
                self.unreadable(key, value, "directory shard");
                return Ok(());
            };
            let index = self.table.find(dir).filter(|index| self.table.is_directory(*index));
            let Some(index) = index.filter(|_| shard == 0) else {
                self.found.add(Problem::StrayShard { dir, shard });
                return Ok(());
            };
            self.table.set(index, Flag::Shard);
            let (stored, found) = (figures.subdirectories, self.table.count(index));
            if stored != found {
                self.found.add(Problem::Subdirectories { dir, stored, found });
            }
            Ok(())
        })
    }
}
