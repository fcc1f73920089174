//! Ends in order while everybody is at work: SIGTERM, which cuts users off, and a lazy unmount, which waits for the last of them. Nothing
//! that was acknowledged is lost, and nothing of the mount stays.
//!
//! What was acknowledged is known here, outside of the mount. Where the kernel writes by passthrough, nobody can cut a writer off: what it
//! acknowledges after the end is in the object, and the next mount has it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::{mapping::Mapping, volume::Volume, world::bytes};

/// Before the end: for the filler, passthrough and the drain to be at work.
const WORKS: Duration = Duration::from_millis(700);
/// Writes that each has had acknowledged by then.
const ENOUGH: u64 = 20;
/// Between two writes that make a file larger, which is all to be synced in the end.
const PAUSE: Duration = Duration::from_micros(100);
const PAGE: usize = 4096;

/// What one writer writes, again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Records at the end of a file that begins empty: inline, then in an object, through the daemon.
    Log,
    /// A file for each.
    Small,
    /// Blocks of a file that has an object, round and round.
    Large,
    /// Blocks at the end of such a file.
    Growing,
    /// Pages of a shared mapping of such a file, each synced by msync(2).
    Mapped,
}

const KINDS: [Kind; 5] = [Kind::Log, Kind::Small, Kind::Large, Kind::Growing, Kind::Mapped];

/// Blocks of a file that grows.
const ENDLESS: u64 = u64::MAX;

impl Kind {
    const fn block_bytes(self) -> usize {
        match self {
            Self::Log => 700,
            Self::Large => 64 << 10,
            Self::Small | Self::Growing | Self::Mapped => PAGE,
        }
    }

    const fn blocks(self) -> u64 {
        match self {
            Self::Large | Self::Mapped => 64,
            Self::Log | Self::Small | Self::Growing => ENDLESS,
        }
    }

    /// What write number `n` brings. Small files have up to some more bytes than are kept inline.
    fn bytes(self, n: u64) -> Vec<u8> {
        let len = if self == Self::Small { (n as usize * 1999) % 20_000 } else { self.block_bytes() };
        bytes(n + 1, len)
    }

    fn place(self, n: u64) -> u64 {
        n % self.blocks() * self.block_bytes() as u64
    }

    /// As it is before the first write. Those that have an object have it, and are closed: it is the next open that has passthrough.
    fn prepare(self, path: &Path) {
        match self {
            Self::Small => fs::create_dir(path).unwrap(),
            Self::Log => drop(File::create_new(path).unwrap()),
            Self::Large | Self::Mapped => {
                fs::write(path, vec![0; self.block_bytes() * self.blocks() as usize]).unwrap();
            }
            Self::Growing => {
                fs::write(path, (0..16).flat_map(|n| self.bytes(n)).collect::<Vec<_>>()).unwrap()
            }
        }
        // Told after close(2) has returned.
        wait_for("it is closed", || self == Self::Small || info(path)["open"].is_null());
    }
}

struct Writer {
    kind: Kind,
    path: PathBuf,
    acknowledged: AtomicU64,
}

impl Writer {
    fn new(kind: Kind, top: &Path) -> Self {
        let path = top.join(format!("{kind:?}"));
        kind.prepare(&path);
        Self { kind, path, acknowledged: AtomicU64::new(if kind == Kind::Growing { 16 } else { 0 }) }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Until it is cut off, or told to stop.
    fn run(&self, stop: &AtomicBool) {
        let mut write = self.begin();
        while !stop.load(Ordering::Relaxed) {
            if let Err(error) = write(self.acknowledged()) {
                println!("{:?} ends after {}: {error}", self.kind, self.acknowledged());
                break;
            }
            self.acknowledged.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn begin(&self) -> Box<dyn FnMut(u64) -> io::Result<()>> {
        let kind = self.kind;
        let open = |append: bool| {
            OpenOptions::new().read(true).write(!append).append(append).open(&self.path).unwrap()
        };
        match kind {
            Kind::Small => {
                let path = self.path.clone();
                Box::new(move |n| File::create_new(path.join(n.to_string()))?.write_all_at(&kind.bytes(n), 0))
            }
            Kind::Log => {
                let file = open(true);
                Box::new(move |n| {
                    std::thread::sleep(PAUSE);
                    io::Write::write_all(&mut &file, &kind.bytes(n))
                })
            }
            Kind::Large => {
                let file = open(false);
                Box::new(move |n| file.write_all_at(&kind.bytes(n), kind.place(n)))
            }
            Kind::Growing => {
                let file = open(false);
                Box::new(move |n| {
                    std::thread::sleep(PAUSE);
                    file.write_all_at(&kind.bytes(n), kind.place(n))
                })
            }
            Kind::Mapped => {
                let mut mapping = Mapping::new(open(false), PAGE * kind.blocks() as usize);
                Box::new(move |n| {
                    mapping.put(kind.place(n) as usize, &kind.bytes(n))?;
                    mapping.sync()
                })
            }
        }
    }

    /// All that was acknowledged is there; the one write that was under way may be, in part, too.
    fn check(&self) {
        let (kind, acknowledged) = (self.kind, self.acknowledged());
        if kind == Kind::Small {
            return self.check_small();
        }
        let data = fs::read(&self.path).unwrap();
        let block = kind.block_bytes();
        let last = if kind.blocks() == ENDLESS { acknowledged } else { kind.blocks() };
        let whole = last as usize * block;
        assert!(
            data.len() >= whole && data.len() <= whole + block,
            "{kind:?}: {} bytes; {acknowledged} writes of {block} bytes were acknowledged",
            data.len()
        );
        for (at, found) in data.chunks(block).enumerate() {
            let under_way = at as u64 == acknowledged % kind.blocks();
            // The last of those that went there.
            let rounds = acknowledged.saturating_sub(at as u64 + 1) / kind.blocks();
            let n = at as u64 + rounds * kind.blocks();
            let expected = if n < acknowledged { kind.bytes(n) } else { vec![0; block] };
            assert!(under_way || found == expected, "{kind:?}: write {n} of {acknowledged} is not there");
        }
    }

    fn check_small(&self) {
        let acknowledged = self.acknowledged();
        for n in 0..acknowledged {
            let found = fs::read(self.path.join(n.to_string())).unwrap();
            assert!(found == self.kind.bytes(n), "file {n} of {acknowledged} has {} bytes", found.len());
        }
        let there = fs::read_dir(&self.path).unwrap().count() as u64;
        assert!(there <= acknowledged + 1, "{there} files, of which {acknowledged} were acknowledged");
    }
}

/// A shared mapping that is changed before the end and never synced: the end does it.
struct Unsynced {
    path: PathBuf,
    mapping: Mapping,
}

impl Unsynced {
    const BYTES: usize = 64 * PAGE;

    fn new(top: &Path) -> Self {
        let path = top.join("unsynced");
        fs::write(&path, vec![0; Self::BYTES]).unwrap();
        let mut mapping =
            Mapping::new(OpenOptions::new().read(true).write(true).open(&path).unwrap(), Self::BYTES);
        mapping.put(0, &bytes(7, Self::BYTES)).unwrap();
        Self { path, mapping }
    }
}

/// What the volume tells of a file.
fn info(path: &Path) -> serde_json::Value {
    let mut info = vec![0; 70_000];
    let len = rustix::fs::getxattr(path, "cofs.info", &mut info[..]).unwrap();
    serde_json::from_slice(&info[..len]).unwrap()
}

/// By which of the two ways the bytes of an open file go.
fn data_path(path: &Path) -> String {
    let info = info(path);
    info["open"]["data_path"].as_str().unwrap_or_else(|| panic!("{info}")).to_owned()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The mount goes when its users do not let go for a moment.
    Sigterm,
    /// The mount is out of the tree at once, and goes when its users have let go.
    LazyUnmount,
}

/// Has everybody write until the end, and looks for all of it in the next mount.
fn end_at_work(name: &str, options: &str, end: End) {
    let Some(mut volume) = Volume::format_with(name, options) else { return };
    volume.mount(None);
    let top = volume.top().join("writers");
    fs::create_dir(&top).unwrap();
    let writers = KINDS.map(|kind| Writer::new(kind, &top));
    let unsynced = Unsynced::new(&top);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _whatever_happens = Stop(&stop);
        for writer in &writers {
            let stop = &stop;
            scope.spawn(move || writer.run(stop));
        }
        std::thread::sleep(WORKS);
        assert_eq!(data_path(&top.join("Large")), volume.data_path());
        // All that is synced takes its time.
        wait_for("everybody has written", || writers.iter().all(|writer| writer.acknowledged() > ENOUGH));
        let before = writers.each_ref().map(Writer::acknowledged);
        match end {
            End::Sigterm => volume.terminate(),
            End::LazyUnmount => volume.unmount_lazily(),
        }
        let goes_on = |(writer, before): (&Writer, u64)| writer.acknowledged() > before;
        let mut writes_on = writers.iter().zip(before);
        match end {
            End::Sigterm => assert!(writes_on.any(goes_on), "nobody was at work"),
            // Who asks for a name does not find it any more.
            End::LazyUnmount => {
                std::thread::sleep(WORKS);
                let opened = writes_on.filter(|(writer, _)| writer.kind != Kind::Small);
                let all_go_on = || opened.clone().all(goes_on);
                wait_for("who has a file open goes on", all_go_on);
            }
        }
    });
    println!("{:?}", writers.each_ref().map(|writer| (writer.kind, writer.acknowledged())));
    if end == End::LazyUnmount {
        std::thread::sleep(Duration::from_millis(200));
        assert!(!volume.ended(), "it has ended, and a file is mapped");
    }
    let Unsynced { path: unsynced, mapping } = unsynced;
    drop(mapping);
    volume.has_ended_well();
    volume.assert_clean();
    volume.mount(None);
    writers.iter().for_each(Writer::check);
    assert!(fs::read(&unsynced).unwrap() == bytes(7, Unsynced::BYTES), "what was mapped is not there");
    assert!(volume.stop());
    volume.assert_clean();
    volume.discard();
    println!("ok {name}");
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Nobody writes on when this is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_was_acknowledged_survives_an_end_at_work() {
    for (how, end) in [("sigterm", End::Sigterm), ("lazy-unmount", End::LazyUnmount)] {
        end_at_work(how, "", end);
        end_at_work(&format!("{how}-supervised"), "supervise", end);
    }
}
