//! What a FORGET leaves to be done: one after the other, in the pool.
//!
//! Nobody waits for it, and nothing bounds how many of them the kernel sends. So none of it is done where the request came, and all of it
//! together takes one thread of the pool, however long the directory below is about it.

use std::{collections::VecDeque, pin::pin, sync::Arc};

use cofs_face::FileSystem;
use cofs_types::{InodeId, limits};
use parking_lot::Mutex;

use crate::{dispatch::unpanicked, executor::Pool};

#[derive(Debug, Default)]
pub(crate) struct Forgets(Mutex<Left>);

#[derive(Debug, Default)]
struct Left {
    inodes: VecDeque<InodeId>,
    /// Somebody is at it, or about to be.
    is_served: bool,
}

impl Forgets {
    /// What `ino` has left is done in a while; or at the end of the mount, where too much is left already.
    pub fn leave<F: FileSystem>(self: &Arc<Self>, ino: InodeId, fs: &Arc<F>, pool: &Arc<Pool>) {
        let mut left = self.0.lock();
        if left.inodes.len() < limits::FUSE_FORGETS_MAX {
            left.inodes.push_back(ino);
        }
        if std::mem::replace(&mut left.is_served, true) {
            return;
        }
        drop(left);
        let (these, fs) = (self.clone(), fs.clone());
        let work = async move {
            while let Some(ino) = these.next() {
                // A panic has been told of; the others have their turn.
                let forgotten = pin!(async {
                    fs.forgotten(ino).await;
                    Ok(())
                });
                let _ = unpanicked(forgotten).await;
            }
        };
        if pool.take_over(Box::pin(work)).is_err() {
            // The next one tries again.
            self.0.lock().is_served = false;
        }
    }

    /// `None`, and nobody is at it any more, when there is nothing left.
    fn next(&self) -> Option<InodeId> {
        let mut left = self.0.lock();
        let next = left.inodes.pop_front();
        left.is_served = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests;
