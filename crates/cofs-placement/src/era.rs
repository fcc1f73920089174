//! When what a file system below has open for us is of no use any more.
//!
//! An NFS client whose server has restarted, and does not take back what was open there, answers EBADF for each of these files from then on;
//! and where what a client knows of a path is stale, so is the directory that is open there: ESTALE. Opened anew they are as before. Nothing
//! tells of it but that error, and to who has the file it says nothing. So everything that is opened in a pool notes the *era* in which that
//! is. Who meets one of these errors first ends the era, and gets ESTALE. What is [`Kept`] open of an era that is over is opened anew when it
//! is wanted next, so whoever may makes his call once more.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::io::Errno;

use crate::store::errno;

/// A pool's present era.
#[derive(Clone, Default)]
pub struct Era(Arc<AtomicU64>);

/// The era in which something was opened.
pub struct Since {
    era: Era,
    number: u64,
}

impl Era {
    fn number(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Asked before something is opened.
    pub fn now(&self) -> Since {
        Since { era: self.clone(), number: self.number() }
    }

    /// Nothing that is open now is of use.
    pub fn end(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes a call on what is kept open.
    pub fn judge<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let since = self.now();
        call().map_err(|error| since.judge(error))
    }
}

impl Since {
    /// What was opened then may be dead.
    pub fn is_over(&self) -> bool {
        self.era.number() != self.number
    }

    /// The error of a call on what was opened then, as it is told. One that says that it is dead ends the era.
    pub fn judge(&self, error: io::Error) -> io::Error {
        if !matches!(errno(&error), Some(Errno::BADF | Errno::STALE)) {
            return error;
        }
        // Many may find out at a time: one of them ends it.
        let next = self.number + 1;
        let _ = self.era.0.compare_exchange(self.number, next, Ordering::AcqRel, Ordering::Relaxed);
        Errno::STALE.into()
    }
}

/// What a pool keeps open for itself.
pub struct Kept<T> {
    era: Era,
    open: Option<(Since, T)>,
}

impl<T> Kept<T> {
    pub fn new(era: Era) -> Self {
        Self { era, open: None }
    }

    /// It, opened if it is not, or was in an era that is over.
    pub fn get(&mut self, open: impl FnOnce() -> io::Result<T>) -> io::Result<&mut T> {
        let now = self.era.now();
        let open = match self.open.take() {
            Some((since, it)) if !since.is_over() => (since, it),
            _ => (now, open()?),
        };
        Ok(&mut self.open.insert(open).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_ends_once_for_all_who_find_out() {
        for found in [Errno::BADF, Errno::STALE] {
            let era = Era::default();
            let (one, other) = (era.now(), era.now());
            assert_eq!(errno(&one.judge(Errno::IO.into())), Some(Errno::IO));
            assert!(!one.is_over());
            assert_eq!(errno(&one.judge(found.into())), Some(Errno::STALE));
            assert!(one.is_over() && other.is_over());
            let anew = era.now();
            assert_eq!(errno(&other.judge(found.into())), Some(Errno::STALE));
            assert!(!anew.is_over(), "what was opened since lives");
        }
    }

    #[test]
    fn what_is_kept_is_opened_once_an_era() {
        let era = Era::default();
        let mut kept = Kept::new(era.clone());
        assert!(kept.get(|| Err(Errno::NOENT.into())).is_err());
        let mut opened = 0;
        let mut get = || {
            opened += 1;
            Ok(opened)
        };
        let before = [*kept.get(&mut get).unwrap(), *kept.get(&mut get).unwrap()];
        era.end();
        let after = [*kept.get(&mut get).unwrap(), *kept.get(&mut get).unwrap()];
        assert_eq!((before, after), ([1, 1], [2, 2]));
    }
}
