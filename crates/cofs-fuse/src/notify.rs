//! Taking back what the kernel has been told: attributes, data, entries.
//!
//! The kernel takes the inode's locks for an invalidation, and a caller of one of our operations may hold
//! them while it waits for us: so an invalidation sent from inside an operation could wait for itself. All
//! go through a thread of their own; the caller only leaves word. Word for one inode is kept once.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    thread::JoinHandle,
};

use cofs_fs::Recall;
use cofs_types::{InodeId, Name, NameBuf, limits};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::{
    abi::{NotifyInvalEntryOut, NotifyInvalInodeOut, OutHeader, notify},
    dev_fuse::Device,
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Depth {
    Attributes,
    Data,
}

#[derive(Debug, Default)]
struct Words {
    inodes: HashMap<InodeId, Depth>,
    entries: HashSet<(InodeId, NameBuf)>,
    closed: bool,
}

impl Words {
    fn is_full(&self) -> bool {
        self.inodes.len() + self.entries.len() >= limits::FUSE_RECALLS_MAX
    }
}

/// What is still to be told.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    words: Mutex<Words>,
    changed: Condvar,
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
        loop {
            let (inodes, entries) = {
                let mut words = self.words.lock();
                while words.inodes.is_empty() && words.entries.is_empty() {
                    if words.closed {
                        return;
                    }
                    self.changed.wait(&mut words);
                }
                (std::mem::take(&mut words.inodes), std::mem::take(&mut words.entries))
            };
            inodes.into_iter().for_each(|(ino, depth)| device.send(&invalidate_inode(ino, depth)));
            entries.iter().for_each(|(parent, name)| device.send(&invalidate_entry(*parent, name)));
        }
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
        });
    }

    fn entry(&self, parent: InodeId, name: &Name) {
        self.leave(|words| {
            words.entries.insert((parent, name.to_owned()));
        });
    }
}

pub(crate) type Notice = SmallVec<[u8; 320]>;

fn notice(code: i32, body: &[u8], name: &[u8]) -> Notice {
    let nul: &[u8] = if name.is_empty() { b"" } else { b"\0" };
    let len = size_of::<OutHeader>() + body.len() + name.len() + nul.len();
    let mut bytes = Notice::new();
    bytes.extend_from_slice(OutHeader { len: len as u32, error: code, unique: 0 }.as_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(nul);
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

fn invalidate_entry(parent: InodeId, name: &Name) -> Notice {
    let name = name.as_bytes();
    let body = NotifyInvalEntryOut { parent: parent.get(), namelen: name.len() as u32, flags: 0 };
    notice(notify::INVAL_ENTRY, body.as_bytes(), name)
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
        let entry = invalidate_entry(ino, Name::new(b"ab").unwrap());
        assert_eq!(entry[..8], [35, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(entry[16..], *b"\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0ab\0");
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
}
