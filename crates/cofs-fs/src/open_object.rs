//! An object that is open, and its registration with the kernel.

use std::{
    os::fd::AsFd,
    sync::{Arc, OnceLock},
};

use cofs_placement::ObjectFile;

use crate::{BackingId, Passthrough, descriptors::Descriptor};

/// A registered backing file. The kernel lets go of it when this is dropped.
struct Backing {
    passthrough: Arc<dyn Passthrough>,
    id: BackingId,
}

impl Drop for Backing {
    fn drop(&mut self) {
        self.passthrough.unregister(self.id);
    }
}

/// One object, opened once for all opens of its file, with at most one backing id (a rule of the kernel:
/// two opens of an inode with different ids give the second an EIO).
pub(crate) struct OpenObject {
    pub(crate) file: Arc<ObjectFile>,
    backing: OnceLock<Backing>,
    _descriptor: Descriptor,
}

impl OpenObject {
    pub(crate) fn new(file: Arc<ObjectFile>, descriptor: Descriptor) -> Self {
        Self { file, backing: OnceLock::new(), _descriptor: descriptor }
    }

    pub(crate) fn backing(&self) -> Option<BackingId> {
        self.backing.get().map(|backing| backing.id)
    }

    /// Its backing id, registered now if it has none. The caller holds the inode's lock.
    pub(crate) fn register(&self, passthrough: &Arc<dyn Passthrough>) -> std::io::Result<BackingId> {
        if let Some(id) = self.backing() {
            return Ok(id);
        }
        let id = passthrough.register(self.file.as_fd())?;
        let backing = Backing { passthrough: Arc::clone(passthrough), id };
        // Under the inode's lock nobody was faster; if it were, dropping this one is right.
        Ok(self.backing.get_or_init(|| backing).id)
    }
}
