//! The operations, one group a file. Their order of steps is the table in `docs/design/orders.md`.

mod attributes;
mod copy_range;
mod create;
mod directory;
mod fallocate;
mod lseek;
mod names;
mod open;
mod read;
mod remove;
mod sync;
mod truncate;
mod whole;
mod write;
mod xattr;
