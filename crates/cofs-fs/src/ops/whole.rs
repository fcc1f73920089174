//! The volume as a whole: its space, and its end.

use cofs_metadata::MetadataDriver;
use cofs_placement::PoolHealth;
use cofs_types::{FsError, FsResult, failpoint, limits};

use crate::{Cofs, Space, blocking, open_inode::OpenInode};

/// Inodes are numbers, of which there are 2^48 in a partition.
const INODES: u64 = 1 << 48;
const BLOCK_BYTES: u64 = 4096;

impl<M: MetadataDriver> Cofs<M> {
    pub(crate) async fn do_statfs(&self) -> FsResult<Space> {
        // The space of the pools is cached; asking for it anew may wait.
        blocking().await;
        let mut space = Space {
            block_bytes: BLOCK_BYTES as u32,
            name_bytes_max: limits::NAME_BYTES_MAX as u32,
            files: INODES,
            files_free: INODES.saturating_sub(self.metadata.files()),
            ..Space::default()
        };
        let mut counted = Vec::new();
        for pool in self.placement.space().iter().filter(|pool| pool.health == PoolHealth::Healthy) {
            // Pools that lie on one file system share its space, unless each has a quota of its own.
            let whose = (pool.space.device, pool.space.total_bytes);
            if counted.contains(&whose) {
                continue;
            }
            counted.push(whose);
            space.blocks += pool.space.total_bytes / BLOCK_BYTES;
            space.blocks_free += pool.space.free_bytes / BLOCK_BYTES;
            space.blocks_available += pool.space.available_bytes / BLOCK_BYTES;
        }
        if !self.metadata.takes_more() {
            // What the pools have is of no use to anybody.
            space.blocks_available = 0;
            (space.files, space.files_free) = (space.files - space.files_free, 0);
        }
        Ok(space)
    }

    /// The mount is gone. Files whose release never came (a forced unmount) are settled like any other; what
    /// cannot be stays for the next start, and the first error is told when all is done.
    ///
    /// Whoever has a file open through passthrough is not cut off by that: the kernel writes for him until he closes it, without a word to
    /// us. Such a file is settled and stays in the open-for-writing set, so that the next start takes what he has written since.
    pub(crate) async fn do_detach(&self) -> FsResult<()> {
        blocking().await;
        let mut first = self.forget_all_inherited().await;
        for inode in self.opens.all() {
            first = first.and(self.settle_detached(&inode).await);
        }
        failpoint("fs.detach.settled");
        self.placement.stop_filler();
        self.collector.stop();
        self.closed.stop();
        self.idle.clear();
        if self.options.read_only {
            // Whatever has become of the pools, there is nothing to bring there.
            return first.and(self.metadata.close().await);
        }
        first = first.and(self.sync_pools(true));
        // A pool that is closed in order is not looked through: whatever the metadata name is to stand there first.
        first = first.and(self.metadata.sync().await);
        failpoint("fs.detach.synced");
        first = first.and(self.placement.close());
        failpoint("fs.detach.closed");
        let noted = match self.metadata.note_pool_ends(&self.placement.ends()).await {
            // What stands there holds, too: it only leaves more numbers out, should an older copy come.
            Err(FsError::NoSpace) => Ok(()),
            noted => noted.map(drop),
        };
        first.and(noted).and(self.metadata.close().await)
    }

    async fn settle_detached(&self, inode: &OpenInode) -> FsResult<()> {
        let mut state = inode.exclusive().await;
        if self.opens.is_unlinked(inode.ino) {
            // What is in the table counts as open, and is not released.
            self.opens.evict(inode.ino);
            return self.release_unlinked(inode.ino).await;
        }
        if state.opens > 0 && state.writing.is_some() {
            let cut_off = !state.passthrough || state.writers == 0;
            self.settle(inode.ino, &mut state, cut_off).await?;
        }
        Ok(())
    }
}
