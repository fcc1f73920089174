//! Random operations on one file against a plain vector of bytes, with closes, crashes and power held.

mod common;

use cofs_fs::{FileSystem, Opened, run};
use cofs_types::{FallocateMode, InodeId, OpenFlags};
use common::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Write { at: usize, len: usize, seed: u8 },
    Append { len: usize, seed: u8 },
    Truncate { size: usize },
    Punch { at: usize, len: usize },
    Zero { at: usize, len: usize, keep: bool },
    Allocate { at: usize, len: usize, keep: bool },
    Copy { from: usize, to: usize, len: usize },
    Read { at: usize, len: usize },
    Sync,
    Reopen,
    ReopenEmpty,
    SecondOpen,
    Crash,
    Remount,
}

/// Offsets and lengths around the boundary between inline data and objects.
fn offset() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0..INLINE_MAX + 2000,
        2 => INLINE_MAX - 3..INLINE_MAX + 3,
        1 => (0..20usize).prop_map(|chunk| chunk * 4096),
        1 => 0..INLINE_MAX * 6,
    ]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1..200usize, 2 => 1..9000usize, 1 => 1..INLINE_MAX * 2]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (offset(), length(), any::<u8>()).prop_map(|(at, len, seed)| Step::Write { at, len, seed }),
        4 => (length(), any::<u8>()).prop_map(|(len, seed)| Step::Append { len, seed }),
        4 => offset().prop_map(|size| Step::Truncate { size }),
        2 => (offset(), length()).prop_map(|(at, len)| Step::Punch { at, len }),
        2 => (offset(), length(), any::<bool>()).prop_map(|(at, len, keep)| Step::Zero { at, len, keep }),
        1 => (offset(), length(), any::<bool>()).prop_map(|(at, len, keep)| Step::Allocate { at, len, keep }),
        2 => (offset(), offset(), length()).prop_map(|(from, to, len)| Step::Copy { from, to, len }),
        3 => (offset(), length()).prop_map(|(at, len)| Step::Read { at, len }),
        1 => Just(Step::Sync),
        3 => Just(Step::Reopen),
        1 => Just(Step::ReopenEmpty),
        1 => Just(Step::SecondOpen),
        1 => Just(Step::Crash),
        1 => Just(Step::Remount),
    ]
}

struct Subject {
    world: World,
    volume: Option<Volume>,
    ino: InodeId,
    file: Opened,
    model: Vec<u8>,
    /// Space was asked for, so that a small file may stay in its object.
    reserved: bool,
}

impl Subject {
    fn new() -> Self {
        let world = World::new();
        let volume = world.mount();
        let (ino, file) = volume.create("a");
        Self { world, volume: Some(volume), ino, file, model: Vec::new(), reserved: false }
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().unwrap()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.volume().write(self.ino, self.file, at as u64, bytes);
        self.model.resize(self.model.len().max(at + bytes.len()), 0);
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn fallocate(&mut self, mode: FallocateMode, at: usize, len: usize) {
        self.reserved = true;
        let file = self.file;
        run(self.volume().fs.fallocate(&CONTEXT, self.ino, file.handle, mode, at as u64, len as u64))
            .unwrap();
        let keep = !matches!(
            mode,
            FallocateMode::Allocate { keep_size: false } | FallocateMode::ZeroRange { keep_size: false }
        );
        if !keep {
            self.model.resize(self.model.len().max(at + len), 0);
        }
        if !matches!(mode, FallocateMode::Allocate { .. }) {
            let to = (at + len).min(self.model.len());
            self.model[at.min(to)..to].fill(0);
        }
    }

    fn copy(&mut self, from: usize, to: usize, len: usize) {
        let overlap = from < to + len && to < from + len;
        let handle = self.file.handle;
        let copied = run(self.volume().fs.copy_range(
            &CONTEXT,
            (self.ino, handle, from as u64),
            (self.ino, handle, to as u64),
            len as u64,
        ));
        if overlap {
            return assert!(copied.is_err());
        }
        let end = (from + len).min(self.model.len());
        let bytes = self.model[from.min(end)..end].to_vec();
        assert_eq!(copied.unwrap() as usize, bytes.len());
        if !bytes.is_empty() {
            self.model.resize(self.model.len().max(to + bytes.len()), 0);
            self.model[to..to + bytes.len()].copy_from_slice(&bytes);
        }
    }

    fn reopen(&mut self, flags: OpenFlags) {
        self.volume().close(self.ino, self.file);
        self.check_closed();
        self.file = self.volume().open(self.ino, flags);
    }

    /// Between opens the record alone must be right.
    fn check_closed(&self) {
        let volume = self.volume();
        assert!(!volume.writing(self.ino));
        assert_eq!(volume.lookup("a").unwrap().attributes.size_bytes, self.model.len() as u64);
    }

    fn restart(&mut self, clean: bool) {
        let volume = self.volume.take().unwrap();
        if clean {
            volume.close(self.ino, self.file);
            volume.detach();
        } else {
            drop(volume);
        }
        self.volume = Some(self.world.mount());
        self.check_closed();
        assert!(
            !clean || self.volume().is_inline(self.ino) || self.model.len() > INLINE_MAX || self.reserved
        );
        self.file = self.volume().open(self.ino, RW);
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Write { at, len, seed } => self.write(at, &pattern(len, seed)),
            Step::Append { len, seed } => self.write(self.model.len(), &pattern(len, seed)),
            Step::Truncate { size } => {
                self.volume().truncate(self.ino, size as u64).unwrap();
                self.model.resize(size, 0);
            }
            Step::Punch { at, len } => self.fallocate(FallocateMode::PunchHole, at, len),
            Step::Zero { at, len, keep } => {
                self.fallocate(FallocateMode::ZeroRange { keep_size: keep }, at, len);
            }
            Step::Allocate { at, len, keep } => {
                self.fallocate(FallocateMode::Allocate { keep_size: keep }, at, len);
            }
            Step::Copy { from, to, len } => self.copy(from, to, len),
            Step::Read { at, len } => {
                let end = (at + len).min(self.model.len());
                let expected = &self.model[at.min(end)..end];
                assert_eq!(self.volume().read(self.ino, self.file, at as u64, len), expected);
            }
            Step::Sync => {
                run(self.volume().fs.fsync(self.ino, Some(self.file.handle), false)).unwrap();
            }
            Step::Reopen => self.reopen(RW),
            Step::ReopenEmpty => {
                self.reopen(OpenFlags { truncate: true, ..RW });
                self.model.clear();
            }
            Step::SecondOpen => {
                let second = self.volume().open(self.ino, RO);
                let bytes = self.volume().read(self.ino, second, 0, self.model.len() + 10);
                assert_eq!(bytes, self.model);
                self.volume().close(self.ino, second);
            }
            Step::Crash => self.restart(false),
            Step::Remount => self.restart(true),
        }
        assert_eq!(self.volume().stat(self.ino).size_bytes, self.model.len() as u64, "after {step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_file_is_a_vector_of_bytes(steps in prop::collection::vec(step(), 1..40)) {
        let mut subject = Subject::new();
        for step in &steps {
            subject.apply(step);
        }
        let bytes = subject.volume().read(subject.ino, subject.file, 0, subject.model.len() + 10);
        prop_assert_eq!(&bytes, &subject.model);
        subject.restart(true);
        prop_assert_eq!(subject.volume().contents(subject.ino), subject.model.clone());
    }
}
