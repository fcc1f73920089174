//! Telling the kernel what it did not ask for: attributes, data and entries that are out of date, names that are gone, bytes that it may
//! have at once.
//!
//! The kernel takes the inode's locks for an invalidation, and a caller of one of our operations may hold
//! them while it waits for us: so an invalidation sent from inside an operation could wait for itself. All
//! go through a thread of their own; the caller only leaves word. Word for one inode, and for one name, is kept once, and the one that
//! takes back more wins. What is to be stored is told after all that is taken back, and falls with it: of two words about the same bytes the
//! later one holds.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use cofs_face::Recall;
use cofs_types::{InodeId, Name, NameBuf, limits};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::{
    abi::{
        NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyStoreOut, OutHeader, flag, notify,
    },
    dev_fuse::Device,
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Depth {
    Attributes,
    Data,
}

/// What becomes of a name that the kernel knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fate {
    /// Is asked for again before it is used.
    Expired,
    /// Is dropped.
    Unknown,
    /// Was removed, and this inode with it.
    Removed(InodeId),
}

/// Bytes of a file, for the page cache.
#[derive(Debug)]
struct Piece {
    ino: InodeId,
    offset: u64,
    data: Bytes,
}

#[derive(Debug, Default)]
struct Words {
    inodes: HashMap<InodeId, Depth>,
    entries: HashMap<(InodeId, NameBuf), Fate>,
    pieces: Vec<Piece>,
    piece_bytes: usize,
    closed: bool,
    /// How many batches of words were taken to be told, and how many of them have been.
    taken: u64,
    told: u64,
}

impl Words {
    fn is_full(&self) -> bool {
        self.inodes.len() + self.entries.len() >= limits::FUSE_RECALLS_MAX
    }

    fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.entries.is_empty() && self.pieces.is_empty()
    }

    fn entry(&mut self, parent: InodeId, name: &Name, fate: Fate) {
        match self.entries.entry((parent, name.to_owned())) {
            Entry::Occupied(mut known) => {
                let deeper = fate.max(*known.get());
                known.insert(deeper);
            }
            Entry::Vacant(place) => {
                place.insert(fate);
            }
        }
    }

    /// How many batches will have been told when all that is known now has been.
    fn last(&self) -> u64 {
        self.taken + u64::from(!self.is_empty())
    }

    fn tell(self, device: &Device) {
        self.inodes.into_iter().for_each(|(ino, depth)| device.tell(&invalidate_inode(ino, depth)));
        for ((parent, name), fate) in &self.entries {
            device.tell(&match fate {
                Fate::Expired => invalidate_entry(*parent, name, flag::EXPIRE_ONLY),
                Fate::Unknown => invalidate_entry(*parent, name, 0),
                Fate::Removed(child) => delete(*parent, *child, name),
            });
        }
        self.pieces.iter().for_each(|piece| store(piece).for_each(|notice| device.tell(&notice)));
    }
}

/// What is still to be told.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    words: Mutex<Words>,
    changed: Condvar,
    carried_out: Condvar,
}

impl Notifier {
    /// Starts the thread that tells the kernel; it ends after [`Notifier::close`].
    pub fn start(self: &Arc<Self>, device: Arc<Device>) -> io::Result<JoinHandle<()>> {
        let notifier = self.clone();
        std::thread::Builder::new().name("cofs-recall".into()).spawn(move || notifier.run(&device))
    }

    pub fn close(&self) {
        self.words.lock().closed = true;
        self.changed.notify_all();
        self.carried_out.notify_all();
    }

    /// Leaves word. A full store loses it (waiting here could be a deadlock), and says so.
    fn leave(&self, word: impl FnOnce(&mut Words)) {
        let mut words = self.words.lock();
        if words.is_full() {
            return tracing::error!("too many recalls at once: the kernel's caches may be out of date");
        }
        word(&mut words);
        drop(words);
        self.changed.notify_one();
    }

    fn run(&self, device: &Device) {
        while let Some(words) = self.next() {
            words.tell(device);
            self.words.lock().told += 1;
            self.carried_out.notify_all();
        }
    }

    /// Waits for words; `None` when there are none and will be none.
    fn next(&self) -> Option<Words> {
        let mut words = self.words.lock();
        while words.is_empty() {
            if words.closed {
                return None;
            }
            self.changed.wait(&mut words);
        }
        let (closed, taken, told) = (words.closed, words.taken + 1, words.told);
        Some(std::mem::replace(&mut *words, Words { closed, taken, told, ..Words::default() }))
    }
}

impl Recall for Notifier {
    fn attributes(&self, ino: InodeId) {
        self.leave(|words| {
            words.inodes.entry(ino).or_insert(Depth::Attributes);
        });
    }

    fn data(&self, ino: InodeId) {
        self.leave(|words| {
            words.inodes.insert(ino, Depth::Data);
            words.pieces.retain(|piece| piece.ino != ino);
            words.piece_bytes = words.pieces.iter().map(|piece| piece.data.len()).sum();
        });
    }

    fn entry(&self, parent: InodeId, name: &Name) {
        self.leave(|words| words.entry(parent, name, Fate::Unknown));
    }

    fn expire(&self, parent: InodeId, name: &Name) {
        self.leave(|words| words.entry(parent, name, Fate::Expired));
    }

    fn removed(&self, parent: InodeId, name: &Name, ino: InodeId) {
        self.leave(|words| words.entry(parent, name, Fate::Removed(ino)));
    }

    fn store(&self, ino: InodeId, offset: u64, data: Bytes) {
        let mut words = self.words.lock();
        if words.piece_bytes + data.len() > limits::FUSE_STORES_BYTES_MAX {
            // Nobody is worse off: who reads them asks.
            return tracing::debug!(%ino, "no room for bytes that the kernel has not asked for");
        }
        words.piece_bytes += data.len();
        words.pieces.push(Piece { ino, offset, data });
        drop(words);
        self.changed.notify_one();
    }

    fn said(&self) -> u64 {
        self.words.lock().last()
    }

    fn carried_out(&self, said: u64, at_most: Duration) -> bool {
        let waits = |words: &mut Words| words.told < said && !words.closed;
        !self.carried_out.wait_while_for(&mut self.words.lock(), waits, at_most).timed_out()
    }
}

pub(crate) type Notice = SmallVec<[u8; 320]>;

/// `tail` is a name with its NUL, or bytes.
fn notice(code: i32, body: &[u8], tail: &[&[u8]]) -> Notice {
    let len = size_of::<OutHeader>() + body.len() + tail.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Notice::with_capacity(len);
    bytes.extend_from_slice(OutHeader { len: len as u32, error: code, unique: 0 }.as_bytes());
    bytes.extend_from_slice(body);
    tail.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// Has the kernel send again, marked, what was read from the connection and never answered.
pub(crate) fn resend() -> Notice {
    notice(notify::RESEND, &[], &[])
}

/// A negative offset means the attributes alone; a length of 0, to the end of the file.
fn invalidate_inode(ino: InodeId, depth: Depth) -> Notice {
    let off = if depth == Depth::Data { 0 } else { -1 };
    notice(notify::INVAL_INODE, NotifyInvalInodeOut { ino: ino.get(), off, len: 0 }.as_bytes(), &[])
}

fn invalidate_entry(parent: InodeId, name: &Name, flags: u32) -> Notice {
    let name = name.as_bytes();
    let body = NotifyInvalEntryOut { parent: parent.get(), namelen: name.len() as u32, flags };
    notice(notify::INVAL_ENTRY, body.as_bytes(), &[name, b"\0"])
}

/// The kernel does as if it had removed the name itself: the inode has no link, and its watchers hear of it.
fn delete(parent: InodeId, child: InodeId, name: &Name) -> Notice {
    let name = name.as_bytes();
    let (parent, child, namelen) = (parent.get(), child.get(), name.len() as u32);
    let body = NotifyDeleteOut { parent, child, namelen, padding: 0 };
    notice(notify::DELETE, body.as_bytes(), &[name, b"\0"])
}

/// In pieces that a WRITE could have, too.
fn store(piece: &Piece) -> impl Iterator<Item = Notice> {
    let chunks = piece.data.chunks(limits::FUSE_TRANSFER_BYTES_MAX);
    chunks.scan(piece.offset, |at, chunk| {
        let body =
            NotifyStoreOut { nodeid: piece.ino.get(), offset: *at, size: chunk.len() as u32, padding: 0 };
        *at += chunk.len() as u64;
        Some(notice(notify::STORE, body.as_bytes(), &[chunk]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_have_the_kernels_layout() {
        let ino = InodeId::new(5).unwrap();
        let attributes = invalidate_inode(ino, Depth::Attributes);
        assert_eq!(attributes[..16], [40, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(attributes[16..40], [[5, 0, 0, 0, 0, 0, 0, 0], [255; 8], [0; 8]].concat());
        let name = Name::new(b"ab").unwrap();
        let entry = invalidate_entry(ino, name, flag::EXPIRE_ONLY);
        assert_eq!(entry[..8], [35, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(entry[16..], *b"\x05\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0ab\0");
        let gone = delete(InodeId::ROOT, ino, name);
        assert_eq!(gone[..8], [43, 0, 0, 0, 6, 0, 0, 0]);
        assert_eq!(gone[16..], *b"\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0ab\0");
    }

    #[test]
    fn what_is_stored_comes_in_pieces_one_behind_the_other() {
        let data = Bytes::from(vec![7; limits::FUSE_TRANSFER_BYTES_MAX + 3]);
        let piece = Piece { ino: InodeId::new(5).unwrap(), offset: 4096, data };
        let notices: Vec<Notice> = store(&piece).collect();
        assert_eq!(notices[0].len(), 16 + 24 + limits::FUSE_TRANSFER_BYTES_MAX);
        assert_eq!(notices[1][..8], [43, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(
            notices[1][16..],
            *b"\x05\0\0\0\0\0\0\0\0\x10\x10\0\0\0\0\0\x03\0\0\0\0\0\0\0\x07\x07\x07"
        );
    }

    #[test]
    fn word_for_one_inode_is_kept_once_and_the_deeper_one_wins() {
        let notifier = Notifier::default();
        let ino = InodeId::new(5).unwrap();
        notifier.attributes(ino);
        notifier.data(ino);
        notifier.attributes(ino);
        assert_eq!(notifier.words.lock().inodes, HashMap::from([(ino, Depth::Data)]));
    }

    #[test]
    fn word_for_one_name_is_kept_once_and_what_takes_back_more_wins() {
        let (notifier, ino) = (Notifier::default(), InodeId::new(5).unwrap());
        let name = Name::new(b"a").unwrap();
        notifier.removed(InodeId::ROOT, name, ino);
        notifier.expire(InodeId::ROOT, name);
        notifier.entry(InodeId::ROOT, name);
        let known = HashMap::from([((InodeId::ROOT, name.to_owned()), Fate::Removed(ino))]);
        assert_eq!(notifier.words.lock().entries, known);
    }

    #[test]
    fn bytes_to_be_stored_are_bounded_and_fall_with_the_data_that_is_taken_back() {
        let (notifier, ino) = (Notifier::default(), InodeId::new(5).unwrap());
        let half = Bytes::from(vec![0; limits::FUSE_STORES_BYTES_MAX / 2 + 1]);
        notifier.store(ino, 0, half.clone());
        notifier.store(ino, 0, half.clone());
        assert_eq!(notifier.words.lock().pieces.len(), 1);
        notifier.data(ino);
        assert!(notifier.words.lock().pieces.is_empty());
        notifier.store(ino, 0, half);
        assert_eq!(notifier.words.lock().pieces.len(), 1, "there is room again");
    }
}
