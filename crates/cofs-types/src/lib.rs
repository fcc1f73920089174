//! The words of cofs as types.
//!
//! Every room speaks with these: ids, validated names, attributes, credentials, layouts, one
//! semantic error and the bounds of everything ([`limits`]). Nothing here does I/O, reads a clock or
//! draws a random number; values are parsed once, at the edge, and believed afterwards.

mod attributes;
mod claim;
mod credentials;
mod error;
mod failpoint;
mod flags;
mod ids;
mod layout;
pub mod limits;
mod name;
pub mod size;
mod time;

pub use attributes::{Attributes, FileKind, NewInode, SetAttributes, SetTime};
pub use claim::{CLAIM, CLAIM_NEW, is_as_good_as_empty_with};
pub use credentials::{Authority, Credentials};
pub use error::{FsError, FsResult};
pub use failpoint::{arm as arm_failpoint, failpoint};
pub use flags::{AccessMode, FallocateMode, Kills, OpenFlags, RenameMode, SeekWhence, XattrMode};
pub use ids::{InodeId, ObjectId, PartitionId, PoolEnd, PoolId};
pub use layout::Layout;
pub use name::{Name, NameBuf, XattrName};
pub use time::{Timestamp, utc, utc_day};
