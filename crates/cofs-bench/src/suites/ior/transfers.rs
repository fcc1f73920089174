//! One process's transfers of one phase.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use super::{Access, Ior, pattern::Pattern};
use crate::{Observer, aligned::Aligned};

pub struct Transfers<'a> {
    ior: &'a Ior,
    access: Access,
    places: Vec<u64>,
    pattern: Pattern,
    buffer: Aligned,
    done: usize,
    errors: u64,
}

impl<'a> Transfers<'a> {
    pub fn new(ior: &'a Ior, access: Access, places: Vec<u64>, pattern: Pattern) -> Self {
        let mut buffer = Aligned::new(ior.transfer as usize, b'a');
        buffer.bytes().copy_from_slice(pattern.bytes());
        Self { ior, access, places, pattern, buffer, done: 0, errors: 0 }
    }

    fn compares(&self) -> bool {
        self.access == Access::WriteCheck || self.ior.check_read
    }

    /// All of them, or those of the time there is. With a stonewall: how many transfers each process made.
    pub fn run(&mut self, file: &File, observer: &mut dyn Observer) -> io::Result<Option<Vec<u64>>> {
        // What is checked was written: time is no matter.
        let limited = self.ior.stonewall > 0 && self.access != Access::WriteCheck;
        let done = match limited {
            true => Some(self.until_stonewall(file, observer)?),
            false => self.up_to(self.places.len(), None, file, observer).map(|()| None)?,
        };
        if self.compares() {
            observer.count("errors", self.errors);
        }
        Ok(done)
    }

    fn until_stonewall(&mut self, file: &File, observer: &mut dyn Observer) -> io::Result<Vec<u64>> {
        let end = Instant::now() + Duration::from_secs(self.ior.stonewall);
        let mut all = Vec::new();
        observer.span("stonewall", &mut |observer| {
            self.up_to(self.places.len(), Some(end), file, observer)?;
            all = observer.agree(self.done as u64)?;
            Ok(())
        })?;
        observer.count("stonewall bytes", self.done as u64 * self.ior.transfer);
        if self.ior.wear_out {
            let most = all.iter().copied().max().unwrap_or_default() as usize;
            self.up_to(most, None, file, observer)?;
            all = observer.agree(self.done as u64)?;
        }
        Ok(all)
    }

    fn up_to(
        &mut self,
        count: usize,
        end: Option<Instant>,
        file: &File,
        observer: &mut dyn Observer,
    ) -> io::Result<()> {
        while self.done < count && end.is_none_or(|end| Instant::now() < end) {
            let Some(place) = self.places.get(self.done).copied() else { break };
            self.one(file, place, observer)?;
            self.done += 1;
        }
        Ok(())
    }

    fn one(&mut self, file: &File, place: u64, observer: &mut dyn Observer) -> io::Result<()> {
        if self.ior.store_offset && (self.access == Access::Write || self.compares()) {
            self.pattern.at(place);
        }
        let buffer = self.buffer.bytes();
        if self.access == Access::Write {
            if self.ior.store_offset {
                buffer.copy_from_slice(self.pattern.bytes());
            }
            observer.operation(&mut || {
                file.write_all_at(buffer, place)?;
                if self.ior.fsync_each { file.sync_all() } else { Ok(()) }
            })?;
        } else {
            observer.operation(&mut || file.read_exact_at(buffer, place))?;
        }
        observer.bytes(self.ior.transfer);
        if self.compares() {
            self.errors += self.pattern.differences(self.buffer.bytes());
        }
        Ok(())
    }
}
