//! When a file system below has given up what was open.
//!
//! An NFS client whose server has restarted, and does not take back what was open there, answers EBADF for each of these files from then on;
//! opened anew they are as before. Nothing tells of it but that error, and to who has the file it says nothing. So everything that is
//! opened in a pool notes the *era* in which that is. Who meets the error first ends the era, and gets ESTALE, which it is; and what is only
//! kept open of an era that is over is closed, not used.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::io::Errno;

use crate::pool::errno;

/// A pool's present era.
#[derive(Clone, Default)]
pub struct Era(Arc<AtomicU64>);

/// The era in which something was opened.
pub struct Since {
    era: Era,
    number: u64,
}

impl Era {
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Asked before something is opened.
    pub fn now(&self) -> Since {
        Since { era: self.clone(), number: self.number() }
    }
}

impl Since {
    /// What was opened then may be dead.
    pub fn is_over(&self) -> bool {
        self.era.number() != self.number
    }

    /// The error of a call on what was opened then, as it is told. One that says that it is dead ends the era.
    pub fn judge(&self, error: io::Error) -> io::Error {
        if errno(&error) != Some(Errno::BADF) {
            return error;
        }
        // Many may find out at a time: one of them ends it.
        let next = self.number + 1;
        let _ = self.era.0.compare_exchange(self.number, next, Ordering::AcqRel, Ordering::Relaxed);
        Errno::STALE.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_ends_once_for_all_who_find_out() {
        let era = Era::default();
        let (one, other) = (era.now(), era.now());
        assert_eq!(errno(&one.judge(Errno::IO.into())), Some(Errno::IO));
        assert!(!one.is_over());
        assert_eq!(errno(&one.judge(Errno::BADF.into())), Some(Errno::STALE));
        assert!(one.is_over() && other.is_over());
        let anew = era.now();
        assert_eq!(errno(&other.judge(Errno::BADF.into())), Some(Errno::STALE));
        assert!(!anew.is_over(), "what was opened since lives");
    }
}
