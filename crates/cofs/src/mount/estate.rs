//! What a process that serves a mount leaves to the one that comes after it, in the supervisor's keeping: the connection and the
//! store's lock as descriptors, and in words where they belong and what was settled about them.

use std::{io, os::fd::OwnedFd, path::PathBuf};

use cofs_fuse::{Handover, Settled};
use serde::{Deserialize, Serialize};

use super::{mountinfo::Device, supervisor::Parcel};
use crate::failure::{Done, Failure};

/// Raised when a change of the words, or of what node numbers and handles mean, makes another version of cofs unable to go on.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Words {
    version: u32,
    store: PathBuf,
    point: PathBuf,
    /// An older one does not say.
    #[serde(default)]
    device: Option<Device>,
    minor: u32,
    features: u64,
    transfer_bytes: usize,
}

pub struct Estate {
    pub store: PathBuf,
    /// Where it was mounted.
    pub point: PathBuf,
    /// By which the mount is found that has been moved since.
    pub device: Option<Device>,
    pub handover: Handover,
    /// A descriptor of the store's lock.
    pub lock: OwnedFd,
}

impl Estate {
    pub fn pack(self) -> io::Result<Parcel> {
        let Handover { connection, settled } = self.handover;
        let words = Words {
            version: VERSION,
            store: self.store,
            point: self.point,
            device: self.device,
            minor: settled.minor,
            features: settled.features,
            transfer_bytes: settled.transfer_bytes,
        };
        Ok(Parcel { words: serde_json::to_vec(&words)?, descriptors: vec![connection, self.lock] })
    }

    /// Errors: it was left by another version.
    pub fn unpack(parcel: Parcel) -> Done<Self> {
        let foreign = || {
            Failure::new("what the process before this one has left is not understood")
                .next("unmount and mount again: the version in place cannot go on with that mount")
        };
        let words: Words = serde_json::from_slice(&parcel.words).map_err(|_| foreign())?;
        let Ok([connection, lock]) = <[OwnedFd; 2]>::try_from(parcel.descriptors) else {
            return Err(foreign());
        };
        if words.version != VERSION {
            return Err(foreign());
        }
        let Words { store, point, device, minor, features, transfer_bytes, .. } = words;
        let settled = Settled { minor, features, transfer_bytes };
        Ok(Self { store, point, device, handover: Handover { connection, settled }, lock })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn estate() -> Estate {
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        let settled = Settled { minor: 41, features: u64::MAX, transfer_bytes: 1 << 20 };
        let handover = Handover { connection: null(), settled };
        Estate { store: "/a b".into(), point: "/m".into(), device: Some((0, 40)), handover, lock: null() }
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let again = Estate::unpack(estate().pack().unwrap()).unwrap();
        assert_eq!((again.store, again.point), ("/a b".into(), "/m".into()));
        assert_eq!(again.device, Some((0, 40)));
        assert_eq!(again.handover.settled, estate().handover.settled);
    }

    #[test]
    fn what_another_version_has_left_is_refused() {
        let mut parcel = estate().pack().unwrap();
        parcel.words =
            String::from_utf8(parcel.words).unwrap().replace("\"version\":1", "\"version\":2").into();
        assert!(Estate::unpack(parcel).is_err());
        let mut parcel = estate().pack().unwrap();
        parcel.descriptors.pop();
        assert!(Estate::unpack(parcel).is_err());
    }
}
