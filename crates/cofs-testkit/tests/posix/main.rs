//! What POSIX and Linux promise of a file system, on a real directory: `$COFS_TEST_DIR`.
//!
//! `./test posix` runs these on mounted volumes, and on ext4 and XFS themselves (`--on native:ext4`), which is how
//! a case is shown to be right. Without the variable every case says that it was skipped. Each works in a
//! fresh directory of its own; those that change credentials do so in a thread that ends with them.

mod data;
mod directories;
mod handles;
mod ledger;
mod links;
mod locks;
mod mapped;
mod names;
mod remount;
mod set_id;
mod space;
mod support;
mod times;
mod users;
mod xattrs;
