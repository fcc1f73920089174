//! What processes hand each other when they write or read together: each has a window of memory that the others
//! can read, a memfd(2) which they open under /proc. It vanishes with its process.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::Observer;

pub struct Windows {
    own: File,
    all: Vec<File>,
}

impl Windows {
    /// A window for this process, and those of the others.
    ///
    /// Errors: the processes are not all on one machine.
    pub fn open(observer: &mut dyn Observer) -> io::Result<Self> {
        let machines = observer.agree(machine()?)?;
        if machines.windows(2).any(|pair| pair.first() != pair.last()) {
            return Err(io::Error::other("the full form needs all processes on one machine"));
        }
        let own = File::from(memfd_create("btio", MemfdFlags::CLOEXEC)?);
        let mine = u64::from(std::process::id()) << 32 | own.as_raw_fd() as u64;
        let places = observer.agree(mine)?;
        let path = |place: &u64| format!("/proc/{}/fd/{}", place >> 32, place & 0xffff_ffff);
        let all: io::Result<Vec<File>> = places.iter().map(|place| File::open(path(place))).collect();
        // Nobody ends before all have opened.
        observer.agree(0)?;
        Ok(Self { own, all: all? })
    }

    /// Puts bytes where the others will look for them after the next agreement.
    pub fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.own.write_all_at(bytes, at)
    }

    /// Takes what process `from` has put.
    pub fn take(&self, from: usize, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let window = self.all.get(from).ok_or(io::ErrorKind::NotFound)?;
        window.read_exact_at(bytes, at)
    }
}

/// A number of the machine's present life (FNV-1a of the kernel's boot id).
fn machine() -> io::Result<u64> {
    let id = fs::read("/proc/sys/kernel/random/boot_id")?;
    Ok(id
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
}
