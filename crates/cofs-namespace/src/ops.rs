//! The verbs: one file each, one transaction each.

mod access;
mod create;
mod inline;
mod layout;
mod link;
mod list;
mod lookup;
mod open;
mod pool_ends;
mod reclaim;
mod release;
mod rename;
mod rmdir;
mod setattr;
mod sync;
mod unlink;
mod xattr;
