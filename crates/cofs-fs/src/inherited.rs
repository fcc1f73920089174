//! What processes before this one have left open: a mount that outlives them (`FsOptions::life`).
//!
//! The kernel goes on using the node numbers and handles of an earlier life. Node numbers are inode numbers, and a handle tells its
//! flags, so both mean here what they meant there; what is lost is who has which inode open. So
//!
//! - the first use of an earlier life's handle enters its inode into the open table, as a reader does: whoever writes enters the
//!   open-for-writing set when he does;
//! - a name that is removed may be that of an open file: each file that loses its last one is held (`ops/remove.rs`);
//! - inodes that were unlinked while open are held from the start;
//! - what is held is let go when the kernel forgets the inode, which it does after its last close, or when the mount ends. Nobody
//!   knows how many closes there are to come.
//!
//! Invariant: an inode stands here as long as one claim on it in the open table is ours.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use cofs_metadata::MetadataDriver;
use cofs_types::{FsError, FsResult, InodeId};
use parking_lot::Mutex;

use crate::{Cofs, HandleId, OpenTable, handle::Handle, open_inode::OpenInode, open_table::Unclaimed};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// It is not to go.
    Claimed,
    /// Its handles are in use: it counts as an open.
    Joined,
}

#[derive(Default)]
pub(crate) struct Inherited {
    inodes: Mutex<HashMap<InodeId, Hold>>,
    /// How many, so that a forget need not lock while there are none, which is nearly always.
    count: AtomicUsize,
}

impl Inherited {
    /// Holds what had lost its last name in an earlier life. Errors: more than may be open at once.
    pub(crate) fn hold_unlinked(&self, opens: &OpenTable, unlinked: Vec<InodeId>) -> FsResult<()> {
        for ino in unlinked {
            opens.claim(ino)?;
            opens.mark_unlinked(ino);
            self.put(ino, Hold::Claimed);
        }
        Ok(())
    }

    /// Takes over a claim on `ino`, which has lost its last name; returns one that is to be given back for it.
    #[must_use]
    pub(crate) fn hold(&self, ino: InodeId) -> Option<InodeId> {
        (!self.put(ino, Hold::Claimed)).then_some(ino)
    }

    pub(crate) fn has(&self, ino: InodeId) -> bool {
        self.len() > 0 && self.get(ino).is_some()
    }

    fn get(&self, ino: InodeId) -> Option<Hold> {
        self.inodes.lock().get(&ino).copied()
    }

    /// Takes over the caller's claim on `ino`; `false` if one is held already, and the caller's is his to give back.
    fn put(&self, ino: InodeId, hold: Hold) -> bool {
        let mut inodes = self.inodes.lock();
        let is_new = !inodes.contains_key(&ino);
        if is_new || hold == Hold::Joined {
            inodes.insert(ino, hold);
        }
        self.count.store(inodes.len(), Ordering::Release);
        is_new
    }

    /// The claim is the caller's to give back.
    fn take(&self, ino: InodeId) -> Option<Hold> {
        if self.len() == 0 {
            return None;
        }
        let mut inodes = self.inodes.lock();
        let hold = inodes.remove(&ino);
        self.count.store(inodes.len(), Ordering::Release);
        hold
    }

    fn all(&self) -> Vec<InodeId> {
        self.inodes.lock().keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

impl<M: MetadataDriver> Cofs<M> {
    /// Whether the handle was given out in an earlier life.
    pub(crate) fn is_inherited(&self, handle: HandleId) -> bool {
        Handle::from_id(handle).life() != self.options.life
    }

    /// The inode that is open by this handle. Errors: `BadHandle` for one that nobody has given out; those of an open.
    pub(crate) async fn opened_by(&self, ino: InodeId, handle: HandleId) -> FsResult<Arc<OpenInode>> {
        let life = Handle::from_id(handle).life();
        if life >= self.options.life {
            let open = self.opens.get(ino).filter(|_| life == self.options.life);
            return open
                .inspect(|open| open.dropping.done(Handle::from_id(handle).place()))
                .ok_or(FsError::BadHandle);
        }
        let inode = self.opens.claim(ino)?;
        match self.inherit(&inode).await {
            Ok(true) => Ok(inode),
            Ok(false) => self.unclaim(ino).await.map(|()| inode),
            Err(error) => self.unclaim(ino).await.and(Err(error)),
        }
    }

    /// Enters an inode that the caller has claimed; `true` if that claim is ours now.
    async fn inherit(&self, inode: &OpenInode) -> FsResult<bool> {
        if self.inherited.get(inode.ino) == Some(Hold::Joined) {
            return Ok(false);
        }
        let mut state = inode.exclusive().await;
        if self.inherited.get(inode.ino) == Some(Hold::Joined) {
            return Ok(false);
        }
        self.join(inode, &mut state, false).await?;
        Ok(self.inherited.put(inode.ino, Hold::Joined))
    }

    /// One of an earlier life's closes. There may be more: what the file has become is told now, and it stays open, and in the open-for-writing set, as somebody's
    /// bytes may be on their way to its object.
    pub(crate) async fn release_inherited(&self, ino: InodeId, handle: HandleId) -> FsResult<()> {
        let Some(inode) = self.opens.get(ino).filter(|_| Handle::from_id(handle).writes()) else {
            return Ok(());
        };
        let mut state = inode.exclusive().await;
        if state.opens > 0 && state.writers == 0 && state.writing.is_some() && !self.opens.is_unlinked(ino) {
            return self.settle(ino, &mut state, false).await;
        }
        Ok(())
    }

    /// The kernel has nobody left who has it open.
    pub(crate) async fn forget_inherited(&self, ino: InodeId) {
        if let Some(hold) = self.inherited.take(ino)
            && let Err(error) = self.let_go(ino, hold).await
        {
            tracing::warn!(%error, %ino, "a file that was open before is settled at the next start");
        }
    }

    /// The mount ends. On a thread that may wait.
    pub(crate) async fn forget_all_inherited(&self) -> FsResult<()> {
        let mut first = Ok(());
        for ino in self.inherited.all() {
            if let Some(hold) = self.inherited.take(ino) {
                first = first.and(self.let_go(ino, hold).await);
            }
        }
        if self.options.life > 0
            && let Err(error) = self.collect()
        {
            tracing::warn!(%error, "objects wait to be removed");
        }
        first
    }

    async fn let_go(&self, ino: InodeId, hold: Hold) -> FsResult<()> {
        let mut left = Ok(());
        if hold == Hold::Joined
            && let Some(inode) = self.opens.get(ino)
        {
            let mut state = inode.exclusive().await;
            left = self.leave(&inode, &mut state, false).await;
        }
        if self.opens.unclaim(ino) != Unclaimed::LastOfUnlinked {
            return left;
        }
        if self.placement.is_in_order() {
            return left.and(self.release_unlinked(ino).await);
        }
        self.close_idle(ino);
        // Of an inode from before a crash: see the collector's invariants.
        self.collector.release_later(ino);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(number: u64) -> InodeId {
        InodeId::new(number).unwrap()
    }

    #[test]
    fn one_claim_is_kept_for_each_inode_and_an_open_stays_one() {
        let inherited = Inherited::default();
        assert_eq!(inherited.hold(ino(1)), None);
        assert_eq!(inherited.hold(ino(1)), Some(ino(1)), "the second claim is given back");
        assert!(!inherited.put(ino(1), Hold::Joined));
        assert_eq!(inherited.hold(ino(1)), Some(ino(1)));
        assert_eq!(inherited.take(ino(1)), Some(Hold::Joined));
        assert_eq!((inherited.take(ino(1)), inherited.len()), (None, 0));
    }

    #[test]
    fn what_was_unlinked_while_open_is_open_from_the_start() {
        let (inherited, opens) = (Inherited::default(), OpenTable::default());
        inherited.hold_unlinked(&opens, vec![ino(3), ino(4)]).unwrap();
        assert!(opens.is_unlinked(ino(3)) && opens.is_unlinked(ino(4)));
        assert_eq!(inherited.take(ino(3)), Some(Hold::Claimed));
        assert_eq!(opens.unclaim(ino(3)), Unclaimed::LastOfUnlinked);
    }
}
