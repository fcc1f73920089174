//! The operations, a few lines each: arguments in the kernel's words to a call, its result to an answer.
//! Nothing is decided here.

pub mod attributes;
pub mod directories;
pub mod files;
pub mod names;
pub mod whole;
pub mod xattrs;

use cofs_face::{Space, Stat};

use crate::{
    errno::Errno,
    reply::{Reply, Short},
};

type Answered = Result<Reply, Errno>;

/// What a request came to that can be left while it waits: it borrows nothing from the request's memory, and is laid out once it is there.
#[derive(Debug)]
pub enum Seen {
    Nothing,
    Attributes(Stat),
    Statx(Stat),
    Space(Space),
}

impl Seen {
    pub fn lay_out(&self, short: &mut Short<'_>) -> Reply {
        match self {
            Self::Nothing => Reply::DONE,
            Self::Attributes(stat) => short.attributes(stat),
            Self::Statx(stat) => short.statx(stat),
            Self::Space(space) => short.space(space),
        }
    }
}
