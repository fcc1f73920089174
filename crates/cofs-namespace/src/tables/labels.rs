//! Whether any inode has a security label, the attribute `security.selinux`.
//!
//! `ls -l` asks for the label of each file, and stops asking in a whole file system that says it has none. So a volume
//! remembers that no label was ever set: the header's record `l` holds the epoch in which that was known.
//!
//! Invariants:
//! - the record is believed only in the epoch that it names. Each open renews it together with the epoch, so that after an
//!   older cofs, which knows of no such record, had the volume, nothing is believed any more;
//! - the first label deletes it in its own commit;
//! - who asks is told "no labels here" only while that is so: the word changes before the first label is committed.

use std::sync::atomic::{AtomicBool, Ordering};

use cofs_engine::Change;
use cofs_types::{FsResult, XattrName};

use crate::{
    schema::{HeaderPart, decode_number, encode_number, key},
    tx::Tx,
};

/// The attribute in which SELinux keeps a file's label.
pub const LABEL: &[u8] = b"security.selinux";

/// No inode of the volume has a label, in this epoch.
pub fn unlabelled(epoch: u64) -> Change {
    Change::put(key::header(HeaderPart::Unlabelled), encode_number(epoch))
}

/// Whether the record says so of this epoch; what cannot be read says nothing.
pub fn is_unlabelled(record: Option<&[u8]>, epoch: u64) -> bool {
    record.is_some_and(|value| decode_number(value).is_ok_and(|named| named == epoch))
}

pub struct Labels {
    possible: AtomicBool,
}

impl Labels {
    pub fn new(possible: bool) -> Self {
        Self { possible: AtomicBool::new(possible) }
    }

    /// Whether `name` is the label's in a volume that has none.
    pub fn excludes(&self, name: &XattrName) -> bool {
        name.as_bytes() == LABEL && !self.possible.load(Ordering::SeqCst)
    }

    /// To be called in the transaction that sets `name`.
    pub fn note(&self, tx: &mut Tx<'_>, name: &XattrName) -> FsResult<()> {
        if name.as_bytes() != LABEL {
            return Ok(());
        }
        // Before the commit, and it stays so if that fails: then one is told that this file has none.
        self.possible.store(true, Ordering::SeqCst);
        let key = key::header(HeaderPart::Unlabelled);
        if tx.get(&key)?.is_some() {
            tx.delete(&key);
        }
        Ok(())
    }
}
