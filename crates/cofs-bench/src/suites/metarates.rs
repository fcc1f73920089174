//! Rates of single metadata operations, as NCAR's metarates measures them: every process does one kind of
//! operation on its files, in a directory that all share or in its own.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use crate::{
    Suite, Unit,
    options::Load,
    suite::{Observer, Phase},
    worker::Seat,
};

pub struct Metarates;

const fn rate(name: &'static str) -> Phase {
    Phase::new(name, Unit::OperationsPerSecond)
}

const PHASES: &[Phase] = &[
    rate("create"),
    rate("open"),
    rate("stat"),
    rate("stat again"),
    rate("stat cold").cold(),
    rate("utime"),
    rate("unlink"),
    rate("create+write"),
    rate("read"),
    rate("read again"),
    rate("read cold").cold(),
    rate("unlink written").silent(),
];

impl Suite for Metarates {
    fn name(&self) -> &'static str {
        "metarates"
    }

    fn about(&self) -> &'static str {
        "create, open, stat, utime, unlink, and small files written and read"
    }

    fn phases(&self) -> &'static [Phase] {
        PHASES
    }

    fn work(&self, phase: &str, load: &Load, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let directory = seat.directory(load);
        fs::create_dir_all(&directory)?;
        let data = vec![0x5a; load.small_bytes];
        let mut buffer = Vec::with_capacity(load.small_bytes + 1);
        for number in 0..load.share(seat) {
            let path = seat.file(&directory, number);
            observer.operation(&mut || one(phase, &path, &data, &mut buffer))?;
        }
        Ok(())
    }
}

fn one(phase: &str, path: &Path, data: &[u8], buffer: &mut Vec<u8>) -> io::Result<()> {
    match phase {
        "create" => create(path).map(drop),
        "open" => File::open(path).map(drop),
        "stat" | "stat again" | "stat cold" => fs::symlink_metadata(path).map(drop),
        "utime" => {
            let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
        }
        "create+write" => create(path)?.write_all(data),
        "read" | "read again" | "read cold" => {
            buffer.clear();
            File::open(path)?.take(data.len() as u64).read_to_end(buffer)?;
            if buffer.len() == data.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        }
        _ => fs::remove_file(path),
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}
