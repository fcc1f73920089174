//! Who asks.

/// Whether someone has already checked that the caller may do what it asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Authority {
    /// The kernel has checked (a FUSE mount with `default_permissions`): the name space does not again.
    Checked,
    /// Nobody has: the name space checks modes, ACLs, ownership and the sticky bit.
    Unchecked,
}

/// The caller of an operation. `groups` are the supplementary groups (they may repeat `gid`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials<'a> {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'a [u32],
    pub authority: Authority,
}

impl Credentials<'_> {
    /// The superuser, with nothing left to check: what cofs itself acts as.
    pub const ROOT: Credentials<'static> =
        Credentials { uid: 0, gid: 0, groups: &[], authority: Authority::Checked };

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
