//! What tests of the whole share: a pure reference model of a POSIX tree, seeded operations on it, and
//! subjects that must behave like it: the name space, the file-system layer, a real directory; what the kernel makes of
//! system calls; and a machine of one's own.
//!
//! The model is itself held against a real directory of a kernel file system, and everything else against
//! the model. Used from `tests/` only.

pub mod answer;
pub mod compare;
pub mod directory;
pub mod filesystem;
pub mod kernel;
pub mod machine;
pub mod model;
pub mod namespace;
pub mod ops;
