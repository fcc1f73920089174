//! How a volume is served: what the mount command chose.

use cofs_types::{Attributes, Timestamp};

use crate::OpenElsewhere;

/// When reading brings the access time up to date (mount(8)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtimeMode {
    /// When it is not later than the last change, or a day old.
    #[default]
    Relatime,
    /// At every read that reaches the daemon.
    Strict,
    Never,
}

impl AtimeMode {
    /// Whether the first read of what was written must reach the daemon, so that the kernel may not answer it from the
    /// pages that the write has left.
    pub fn sees_reads(self) -> bool {
        self != Self::Never
    }

    /// Whether a read at `now` must be recorded.
    pub fn due(self, attributes: &Attributes, now: Timestamp) -> bool {
        match self {
            Self::Relatime => attributes.atime.relatime_due(attributes.mtime, attributes.ctime, now),
            Self::Strict => true,
            Self::Never => false,
        }
    }
}

/// Options of one mount.
#[derive(Clone, Debug, Default)]
pub struct FsOptions {
    /// Nothing is changed, neither for the callers nor behind their backs: see [`Cofs::open`](crate::Cofs::open).
    pub read_only: bool,
    pub atime: AtimeMode,
    /// Who mounted it; beside root, this user may start a collection (`cofs.gc`).
    pub owner_uid: u32,
    /// The volume's identity, for `cofs.status`.
    pub volume: String,
    /// The pools are on a network file system, whose calls take as long as it wants: nobody is made to wait for one who need not, and who is
    /// killed while he looks can be let go.
    pub remote_below: bool,
    /// How often the mount has been taken over from a process that has ended: 0 for one that this process has made. Handles carry
    /// it, so that those of earlier lives are known (`crate::inherited`).
    pub life: u32,
    /// Asked of files that were being written at a crash: see [`OpenElsewhere`]. None where the kernel cannot tell, or would be wrong.
    pub open_elsewhere: Option<OpenElsewhere>,
}
