//! The suites, one a file.

mod io;
mod metarates;
mod tree;

use crate::Suite;

pub const ALL: &[&dyn Suite] = &[&metarates::Metarates, &tree::Tree, &io::Io];
