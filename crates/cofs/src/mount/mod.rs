//! What `cofs mount` and `cofs umount` need besides the file system: options, the background, the service
//! manager, the kernel's list of mounts.

pub mod connection;
pub mod daemon;
pub mod dead;
pub mod estate;
pub mod live;
pub mod mountinfo;
pub mod notify;
pub mod options;
pub mod program;
pub mod signals;
pub mod supervisor;
