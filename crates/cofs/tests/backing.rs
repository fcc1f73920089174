//! Files that the kernel reads and writes by itself are given back to it: a volume on a real mount, over either transport, in this
//! process, so that the registrations can be counted.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use cofs_engine::MemoryEngine;
use cofs_fs::{Cofs, FsOptions, OpenTable, VolumeParts};
use cofs_fuse::{Mount, MountOptions, Transport, Unmount};
use cofs_metadata::LocalDriver;
use cofs_namespace::{Namespace, VolumeOptions};
use cofs_placement::{Placement, PoolConfig, Tier};
use cofs_types::{PoolId, Timestamp};
use uuid::Uuid;

const VOLUME: Uuid = Uuid::from_u128(7);
const INLINE_MAX: usize = 16 << 10;
const FILES: usize = 40;
/// So many large ones teach their directory that all are.
const TEACHERS: usize = 2;

fn volume(pool: &Path) -> Cofs<LocalDriver> {
    let engine = Arc::new(MemoryEngine::new());
    let options = VolumeOptions { inline_bytes_max: INLINE_MAX as u32, hash_key: [7; 16] };
    Namespace::format(&*engine, &options, (0, 0, 0o755), Timestamp::default()).unwrap();
    let config =
        PoolConfig { id: PoolId(0), name: "default".into(), directory: pool.into(), tier: Tier::Disk };
    Placement::format_pool(&config, VOLUME).unwrap();
    let placement = Arc::new(Placement::open(&[config], VOLUME).unwrap());
    let opens = Arc::new(OpenTable::default());
    let metadata = LocalDriver::open(engine, Arc::<OpenTable>::clone(&opens)).unwrap();
    Cofs::open(VolumeParts { metadata, placement, opens, options: FsOptions::default() }).unwrap()
}

/// `None`, loudly, where files cannot be passed through, or not over this transport.
fn mounted(transport: Transport, pool: &Path, point: &Path) -> Option<Mount> {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: passthrough needs /dev/fuse and root");
        return None;
    }
    if transport == Transport::Uring {
        let _ = fs::write("/sys/module/fuse/parameters/enable_uring", "Y");
    }
    let options = MountOptions { transport, ..MountOptions::default() };
    let mount = cofs_fuse::mount(Arc::new(volume(pool)), point, &options).unwrap();
    let report = mount.report();
    if report.transport != transport || !report.passthrough {
        eprintln!("SKIPPED over {transport:?}: {} (passthrough: {})", report.reason, report.passthrough);
        mount.unmount(Unmount::IfUnused).unwrap();
        mount.join().unwrap();
        return None;
    }
    Some(mount)
}

/// Objects are let go of by a thread of the volume's own.
fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_file_that_was_registered_for_passthrough_is_unregistered_again() {
    for transport in [Transport::DevFuse, Transport::Uring] {
        let (pool, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let Some(mount) = mounted(transport, pool.path(), point.path()) else { continue };
        let at = |number: usize| point.path().join(format!("f{number}"));
        let large = vec![b'x'; 2 * INLINE_MAX];
        assert_eq!(mount.backing_files(), 0);

        // Whose bytes have begun inline is not registered; those that follow are, as they are created.
        let mut files: Vec<_> = (0..FILES)
            .map(|number| {
                let mut file =
                    File::options().read(true).write(true).create_new(true).open(at(number)).unwrap();
                file.write_all(&large).unwrap();
                if number < TEACHERS { None } else { Some(file) }
            })
            .collect();
        // A pool that is slow to give an object is not waited for.
        let created = mount.backing_files();
        assert!((FILES / 2..=FILES - TEACHERS).contains(&created), "{created} of {FILES} at CREATE");

        // At OPEN, too, where nobody has it open still (nobody waits for a RELEASE); who joins shares what is there.
        eventually("one more at OPEN", || {
            files[0] = None;
            files[0] = Some(File::options().read(true).write(true).open(at(0)).unwrap());
            mount.backing_files() > created
        });
        let opened = mount.backing_files();
        assert_eq!(opened, created + 1);
        let mut again = File::open(at(0)).unwrap();
        let mut bytes = Vec::new();
        again.read_to_end(&mut bytes).unwrap();
        assert!(bytes == large && mount.backing_files() == opened);

        // Removed while open they stay, and go with the last close.
        for number in 0..FILES / 2 {
            fs::remove_file(at(number)).unwrap();
        }
        assert_eq!(mount.backing_files(), opened);
        drop((files, again));
        eventually("what was removed is let go", || mount.backing_files() <= FILES / 2);
        // What is closed and has a name may be kept at hand, and is let go with the name.
        for number in FILES / 2..FILES {
            fs::remove_file(at(number)).unwrap();
        }
        eventually("nothing is registered", || mount.backing_files() == 0);

        // And all with the mount.
        let mut last = File::create_new(at(FILES)).unwrap();
        last.write_all(&large).unwrap();
        assert!(mount.backing_files() <= 1);
        drop(last);
        eventually("nobody uses it", || mount.unmount(Unmount::IfUnused).is_ok());
        eventually("it ends", || mount.is_over());
        assert_eq!(mount.backing_files(), 0);
        mount.join().unwrap();
    }
}
