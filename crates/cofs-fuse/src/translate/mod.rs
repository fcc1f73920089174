//! The operations, a few lines each: arguments in the kernel's words to a call, its result to an answer.
//! Nothing is decided here.

pub mod attributes;
pub mod directories;
pub mod files;
pub mod names;
pub mod whole;
pub mod xattrs;

use crate::{errno::Errno, reply::Reply};

type Answered = Result<Reply, Errno>;
