//! POSIX access control lists, as values: parsing, encoding and the rules of POSIX.1e draft 17 (acl(5)).
//!
//! The outer form is Linux's `posix_acl_xattr` version 2 (`linux/posix_acl_xattr.h`): a little-endian
//! `u32` version, then entries of `u16 tag, u16 permissions, u32 id`. An [`Acl`] cannot be anything but
//! valid and canonical: the three base entries always stand, named entries ascend by id without doubles,
//! and a mask stands wherever there are named entries. Nothing here does I/O.

use cofs_types::{Credentials, FileKind, FsError, FsResult, limits};

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id of entries that name nobody, and no id of a user or group.
const NO_ID: u32 = u32::MAX;

/// `e_tag` of Linux's `posix_acl_xattr_entry`.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Read, write and execute bits: 4, 2, 1.
pub type Rwx = u8;

/// What one user or group, named by its id, may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    pub id: u32,
    pub rwx: Rwx,
}

/// A valid access control list. See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    owner: Rwx,
    users: Vec<Named>,
    group: Rwx,
    groups: Vec<Named>,
    mask: Option<Rwx>,
    other: Rwx,
}

/// What a new inode takes from its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inherited {
    /// Permission, set-id and sticky bits.
    pub permissions: u16,
    /// The access ACL, where it says more than the permissions do.
    pub access: Option<Acl>,
    /// The default ACL of a new directory.
    pub default: Option<Acl>,
}

impl Acl {
    /// Reads the value of `system.posix_acl_access` or `system.posix_acl_default`. `None`: no entries, which
    /// asks for the ACL's removal, as on Linux.
    ///
    /// Errors: `InvalidArgument` for anything that is no valid ACL.
    pub fn parse(value: &[u8]) -> FsResult<Option<Self>> {
        let (header, body) =
            value.split_at_checked(HEADER_BYTES).ok_or(invalid("an ACL without its header"))?;
        if header != VERSION.to_le_bytes() {
            return Err(invalid("an ACL of unknown version"));
        }
        let (entries, rest) = body.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(invalid("an ACL ends within an entry"));
        }
        if entries.is_empty() {
            return Ok(None);
        }
        if entries.len() > limits::ACL_ENTRIES_MAX {
            return Err(invalid("an ACL of too many entries"));
        }
        let mut parser = Parser::default();
        entries.iter().try_for_each(|entry| parser.take(*entry))?;
        parser.finish().map(Some)
    }

    /// The value of the extended attribute; `parse` gives the same ACL back.
    pub fn encode(&self) -> Vec<u8> {
        let entries = 4 + self.users.len() + self.groups.len();
        let mut out = Vec::with_capacity(HEADER_BYTES + entries * ENTRY_BYTES);
        out.extend_from_slice(&VERSION.to_le_bytes());
        put(&mut out, OWNER, self.owner, NO_ID);
        self.users.iter().for_each(|u| put(&mut out, USER, u.rwx, u.id));
        put(&mut out, OWNING_GROUP, self.group, NO_ID);
        self.groups.iter().for_each(|g| put(&mut out, GROUP, g.rwx, g.id));
        if let Some(mask) = self.mask {
            put(&mut out, MASK, mask, NO_ID);
        }
        put(&mut out, OTHER, self.other, NO_ID);
        out
    }

    /// The ACL that says what the permission bits say.
    pub fn from_mode(permissions: u16) -> Self {
        Self {
            owner: class(permissions, 6),
            users: Vec::new(),
            group: class(permissions, 3),
            groups: Vec::new(),
            mask: None,
            other: class(permissions, 0),
        }
    }

    pub fn users(&self) -> &[Named] {
        &self.users
    }

    pub fn groups(&self) -> &[Named] {
        &self.groups
    }

    /// The nine permission bits that `stat` shows for this ACL: the group's are the mask where there is one.
    pub fn mode_bits(&self) -> u16 {
        let group = self.mask.unwrap_or(self.group);
        u16::from(self.owner) << 6 | u16::from(group) << 3 | u16::from(self.other)
    }

    /// Whether the permission bits alone say as much, so that the ACL need not be kept.
    pub fn is_trivial(&self) -> bool {
        self.mask.is_none()
    }

    /// chmod(2): the owner's, the group class's (the mask, where there is one) and the others' entries
    /// follow the permission bits.
    #[must_use]
    pub fn with_mode(mut self, permissions: u16) -> Self {
        self.owner = class(permissions, 6);
        self.other = class(permissions, 0);
        *self.group_class() = class(permissions, 3);
        self
    }

    /// The access check of acl(5): whether `c`, by its ids, may do all of `wanted` (R 4, W 2, X 1) with an
    /// inode of these owners. The superuser's privilege is not asked for here.
    pub fn permits(&self, owner: u32, group: u32, c: &Credentials<'_>, wanted: Rwx) -> bool {
        let mask = self.mask.unwrap_or(0o7);
        let grants = |rwx: Rwx| rwx & wanted == wanted;
        if c.uid == owner {
            return grants(self.owner);
        }
        if let Some(user) = self.users.iter().find(|u| u.id == c.uid) {
            return grants(user.rwx & mask);
        }
        let owning = c.in_group(group).then_some(self.group);
        let named = self.groups.iter().filter(|g| c.in_group(g.id)).map(|g| g.rwx);
        let mut member = owning.into_iter().chain(named).peekable();
        if member.peek().is_none() {
            return grants(self.other);
        }
        // Entries do not add up: one of them must grant everything.
        member.any(|rwx| grants(rwx & mask))
    }

    /// The default ACL cut down to what the creator asks for (POSIX.1e, 23.1.6).
    fn limited_to(mut self, permissions: u16) -> Self {
        self.owner &= class(permissions, 6);
        self.other &= class(permissions, 0);
        *self.group_class() &= class(permissions, 3);
        self
    }

    fn group_class(&mut self) -> &mut Rwx {
        self.mask.as_mut().unwrap_or(&mut self.group)
    }
}

/// What a new inode gets: `permissions` and `umask` are the creator's, `default` is the directory's default
/// ACL. Where that stands, it takes the umask's place; symlinks have no ACL and all permissions.
pub fn inherit(default: Option<&Acl>, kind: FileKind, permissions: u16, umask: u16) -> Inherited {
    if kind == FileKind::Symlink {
        return Inherited { permissions: 0o777, access: None, default: None };
    }
    let Some(default) = default else {
        return Inherited { permissions: permissions & !(umask & 0o777), access: None, default: None };
    };
    let access = default.clone().limited_to(permissions);
    Inherited {
        permissions: permissions & 0o7000 | access.mode_bits(),
        access: (!access.is_trivial()).then_some(access),
        default: (kind == FileKind::Directory).then(|| default.clone()),
    }
}

/// Takes entries one by one, in the order of their tags.
#[derive(Default)]
struct Parser {
    last_tag: u16,
    owner: Option<Rwx>,
    users: Vec<Named>,
    group: Option<Rwx>,
    groups: Vec<Named>,
    mask: Option<Rwx>,
    other: Option<Rwx>,
}

impl Parser {
    fn take(&mut self, entry: [u8; ENTRY_BYTES]) -> FsResult<()> {
        let [t0, t1, p0, p1, id @ ..] = entry;
        let (tag, id) = (u16::from_le_bytes([t0, t1]), u32::from_le_bytes(id));
        let rwx = match u16::from_le_bytes([p0, p1]) {
            bits @ 0..=7 => bits as Rwx,
            _ => return Err(invalid("an ACL entry grants what is neither read, write nor execute")),
        };
        let repeats = tag == self.last_tag && !matches!(tag, USER | GROUP);
        if tag < self.last_tag || repeats {
            return Err(invalid("the entries of an ACL are out of order"));
        }
        self.last_tag = tag;
        match tag {
            OWNER => self.owner = Some(rwx),
            USER => self.users.push(named(id, rwx)?),
            OWNING_GROUP => self.group = Some(rwx),
            GROUP => self.groups.push(named(id, rwx)?),
            MASK => self.mask = Some(rwx),
            OTHER => self.other = Some(rwx),
            _ => return Err(invalid("an ACL entry of unknown kind")),
        }
        Ok(())
    }

    fn finish(mut self) -> FsResult<Acl> {
        sort_unique(&mut self.users)?;
        sort_unique(&mut self.groups)?;
        let (Some(owner), Some(group), Some(other)) = (self.owner, self.group, self.other) else {
            return Err(invalid("an ACL lacks the owner's, the group's or the others' entry"));
        };
        if self.mask.is_none() && !(self.users.is_empty() && self.groups.is_empty()) {
            return Err(invalid("an ACL with named entries lacks a mask"));
        }
        Ok(Acl { owner, users: self.users, group, groups: self.groups, mask: self.mask, other })
    }
}

fn named(id: u32, rwx: Rwx) -> FsResult<Named> {
    if id == NO_ID {
        return Err(invalid("an ACL entry names no user or group"));
    }
    Ok(Named { id, rwx })
}

fn sort_unique(entries: &mut [Named]) -> FsResult<()> {
    entries.sort_by_key(|e| e.id);
    if entries.windows(2).any(|pair| matches!(pair, [a, b] if a.id == b.id)) {
        return Err(invalid("an ACL names one user or group twice"));
    }
    Ok(())
}

fn put(out: &mut Vec<u8>, tag: u16, rwx: Rwx, id: u32) {
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&u16::from(rwx).to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
}

/// The bits of one class of `permissions`: 6 the owner's, 3 the group's, 0 the others'.
const fn class(permissions: u16, shift: u32) -> Rwx {
    (permissions >> shift & 0o7) as Rwx
}

const fn invalid(why: &'static str) -> FsError {
    FsError::InvalidArgument(why)
}

#[cfg(test)]
mod tests {
    use cofs_types::Authority;
    use proptest::prelude::*;

    use super::*;

    /// An ACL from a short text: `u::rwx u:5:r-x g::r-- g:7:rw- m::rw- o::---`, entries in any order of ids.
    fn value(text: &str) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in text.split_whitespace() {
            let [kind, id, rwx] = *entry.split(':').collect::<Vec<_>>() else { panic!("{entry}") };
            let tag = match (kind, id.is_empty()) {
                ("u", true) => OWNER,
                ("u", false) => USER,
                ("g", true) => OWNING_GROUP,
                ("g", false) => GROUP,
                ("m", _) => MASK,
                _ => OTHER,
            };
            let bits = rwx.bytes().fold(0, |bits, c| bits << 1 | Rwx::from(c != b'-'));
            put(&mut out, tag, bits, id.parse().unwrap_or(NO_ID));
        }
        out
    }

    fn acl(text: &str) -> Acl {
        Acl::parse(&value(text)).unwrap().unwrap()
    }

    fn who<'a>(uid: u32, gid: u32, groups: &'a [u32]) -> Credentials<'a> {
        Credentials { uid, gid, groups, authority: Authority::Unchecked }
    }

    #[test]
    fn a_minimal_acl_is_its_mode() {
        let acl = acl("u::rw- g::r-- o::---");
        assert!(acl.is_trivial());
        assert_eq!(acl.mode_bits(), 0o640);
        assert_eq!(acl, Acl::from_mode(0o640));
    }

    #[test]
    fn the_bytes_are_those_of_linux() {
        // getfacl's and the kernel's form of `u::rw- u:1000:r-- g::r-- m::r-- o::---`.
        let bytes = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 4, 0, 0xe8, 3, 0, 0],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[16, 0, 4, 0, 255, 255, 255, 255],
            &[32, 0, 0, 0, 255, 255, 255, 255],
        ]
        .concat();
        let acl = Acl::parse(&bytes).unwrap().unwrap();
        assert_eq!(acl.users(), [Named { id: 1000, rwx: 4 }]);
        assert_eq!(acl.encode(), bytes);
    }

    #[test]
    fn named_entries_are_sorted() {
        let acl = acl("u::rwx u:9:r-- u:3:rw- g::r-- g:8:--- g:1:r-- m::rwx o::---");
        assert_eq!(acl.users().iter().map(|u| u.id).collect::<Vec<_>>(), [3, 9]);
        assert_eq!(acl.groups().iter().map(|g| g.id).collect::<Vec<_>>(), [1, 8]);
    }

    #[test]
    fn no_entries_ask_for_removal() {
        assert_eq!(Acl::parse(&value("")).unwrap(), None);
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        let bad = [
            "u::rw- g::r--",                                // others' entry missing
            "u::rw- o::r--",                                // group's entry missing
            "g::rw- o::r--",                                // owner's entry missing
            "g::r-- u::rw- o::---",                         // out of order
            "u::rw- u::rw- g::r-- o::---",                  // owner twice
            "u::rw- g::r-- m::r-- m::r-- o::---",           // mask twice
            "u::rw- u:5:r-- g::r-- o::---",                 // named without mask
            "u::rw- u:5:r-- u:5:rw- g::r-- m::r-- o::---",  // named twice
            "u::rw- u:4294967295:r-- g::r-- m::r-- o::---", // names nobody
        ];
        for text in bad {
            assert!(matches!(Acl::parse(&value(text)), Err(FsError::InvalidArgument(_))), "{text}");
        }
        let good = value("u::rw- g::r-- o::---");
        for cut in [0, 3, 5, good.len() - 1] {
            assert!(Acl::parse(&good[..cut]).is_err(), "cut at {cut}");
        }
        let mut version = good.clone();
        version[0] = 3;
        assert!(Acl::parse(&version).is_err());
        let mut bits = good.clone();
        bits[6] = 8;
        assert!(Acl::parse(&bits).is_err());
        let mut tag = good;
        tag[20] = 0x40;
        assert!(Acl::parse(&tag).is_err());
    }

    #[test]
    fn too_many_entries_are_refused() {
        let mut long = value("u::rw-");
        (0..limits::ACL_ENTRIES_MAX as u32).for_each(|id| put(&mut long, USER, 4, id));
        long.extend_from_slice(&value("g::r-- m::r-- o::---")[HEADER_BYTES..]);
        assert!(Acl::parse(&long).is_err());
    }

    #[test]
    fn the_group_bits_are_the_mask() {
        let acl = acl("u::rwx u:5:rwx g::r-x m::-w- o::--x");
        assert_eq!(acl.mode_bits(), 0o721);
        assert!(!acl.is_trivial());
    }

    #[test]
    fn chmod_changes_the_mask_where_there_is_one() {
        let long = acl("u::rwx u:5:rwx g::r-x m::rwx o::---").with_mode(0o640);
        assert_eq!(long, acl("u::rw- u:5:rwx g::r-x m::r-- o::---"));
        assert_eq!(acl("u::rwx g::r-x o::---").with_mode(0o4751), Acl::from_mode(0o751));
    }

    /// The access check algorithm of acl(5), case by case: owner 10, group 20.
    #[test]
    fn access_follows_acl_5() {
        let a = acl("u::rw- u:11:rwx u:12:--- g::r-- g:21:-w- g:22:rwx m::rw- o::--x");
        let cases: [(Credentials<'_>, Rwx, bool); 16] = [
            (who(10, 0, &[]), 6, true),   // the owner, not under the mask
            (who(10, 22, &[]), 1, false), // the owner's entry decides, not his group's
            (who(11, 0, &[]), 6, true),   // a named user, under the mask
            (who(11, 0, &[]), 1, false),  // ... which takes x away
            (who(12, 20, &[]), 4, false), // a named user's entry decides, not his group's
            (who(13, 20, &[]), 4, true),  // the owning group
            (who(13, 20, &[]), 2, false),
            (who(13, 0, &[20]), 4, true), // ... as a supplementary group
            (who(13, 21, &[]), 2, true),  // a named group
            (who(13, 22, &[]), 6, true),
            (who(13, 22, &[]), 7, false),   // ... under the mask
            (who(13, 20, &[21]), 6, false), // entries do not add up
            (who(13, 20, &[21, 22]), 6, true),
            (who(13, 20, &[]), 1, false), // a member is never an other
            (who(13, 30, &[]), 1, true),  // an other
            (who(13, 30, &[]), 4, false),
        ];
        for (c, wanted, granted) in cases {
            assert_eq!(a.permits(10, 20, &c, wanted), granted, "{c:?} wants {wanted}");
        }
    }

    #[test]
    fn the_owner_is_not_masked() {
        assert!(acl("u::rwx u:5:rwx g::rwx m::--- o::---").permits(1, 2, &who(1, 9, &[]), 7));
    }

    #[test]
    fn without_a_default_acl_the_umask_applies() {
        let got = inherit(None, FileKind::Regular, 0o6666, 0o022);
        assert_eq!(got, Inherited { permissions: 0o6644, access: None, default: None });
    }

    #[test]
    fn a_default_acl_takes_the_umasks_place() {
        let default = acl("u::rwx u:5:rwx g::r-x m::rwx o::r-x");
        let got = inherit(Some(&default), FileKind::Regular, 0o664, 0o077);
        assert_eq!(got.permissions, 0o664);
        assert_eq!(got.access, Some(acl("u::rw- u:5:rwx g::r-x m::rw- o::r--")));
        assert_eq!(got.default, None);
    }

    #[test]
    fn a_directory_hands_its_default_acl_down() {
        let default = acl("u::rwx u:5:r-x g::r-x m::r-x o::---");
        let got = inherit(Some(&default), FileKind::Directory, 0o1777, 0);
        assert_eq!(got.permissions, 0o1750);
        assert_eq!(got.access, Some(default.clone()));
        assert_eq!(got.default, Some(default));
    }

    #[test]
    fn a_minimal_default_acl_leaves_permissions_only() {
        let got = inherit(Some(&Acl::from_mode(0o750)), FileKind::Directory, 0o777, 0o777);
        assert_eq!((got.permissions, got.access), (0o750, None));
        assert_eq!(got.default, Some(Acl::from_mode(0o750)));
    }

    #[test]
    fn a_symlink_has_no_acl() {
        let got = inherit(Some(&Acl::from_mode(0o700)), FileKind::Symlink, 0o640, 0o777);
        assert_eq!(got, Inherited { permissions: 0o777, access: None, default: None });
    }

    fn named_entries() -> impl Strategy<Value = Vec<Named>> {
        prop::collection::btree_map(0..u32::MAX, 0..8u8, 0..4)
            .prop_map(|m| m.into_iter().map(|(id, rwx)| Named { id, rwx }).collect())
    }

    prop_compose! {
        fn any_acl()(owner in 0..8u8, group in 0..8u8, other in 0..8u8, users in named_entries(),
                     groups in named_entries(), mask in 0..8u8, masked: bool) -> Acl {
            let masked = masked || !users.is_empty() || !groups.is_empty();
            Acl { owner, users, group, groups, mask: masked.then_some(mask), other }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Acl::parse(&bytes);
            let _ = Acl::parse(&[&VERSION.to_le_bytes()[..], &bytes].concat());
        }

        #[test]
        fn what_parses_is_canonical(tags in prop::collection::vec((0..7u32, 0..9u16, 0..4u32), 0..9)) {
            let mut bytes = VERSION.to_le_bytes().to_vec();
            for (tag, rwx, id) in tags {
                bytes.extend_from_slice(&((1u32 << tag) as u16).to_le_bytes());
                bytes.extend_from_slice(&rwx.to_le_bytes());
                bytes.extend_from_slice(&id.to_le_bytes());
            }
            if let Ok(Some(acl)) = Acl::parse(&bytes) {
                prop_assert_eq!(Acl::parse(&acl.encode()).unwrap(), Some(acl));
            }
        }

        #[test]
        fn encoding_keeps_everything(acl in any_acl()) {
            prop_assert_eq!(Acl::parse(&acl.encode()).unwrap(), Some(acl));
        }

        #[test]
        fn chmod_sets_the_mode(acl in any_acl(), mode in 0..0o1000u16) {
            prop_assert_eq!(acl.with_mode(mode).mode_bits(), mode);
        }

        /// The permission bits never promise less than the ACL grants: what the mode's three classes
        /// all refuse, nobody gets.
        #[test]
        fn nobody_gets_more_than_the_mode_shows(acl in any_acl(), uid in 0..4u32, gid in 0..4u32, wanted in 1..8u8) {
            let shown = acl.mode_bits();
            let most = class(shown, 6) | class(shown, 3) | class(shown, 0);
            if acl.permits(1, 1, &who(uid, gid, &[]), wanted) {
                prop_assert_eq!(most & wanted, wanted);
            }
        }

        /// Without named entries and mask the ACL is the classic three-class check.
        #[test]
        fn a_trivial_acl_is_the_classic_check(mode in 0..0o1000u16, uid in 0..3u32, gid in 0..3u32, wanted in 0..8u8) {
            let shift = if uid == 1 { 6 } else if gid == 1 { 3 } else { 0 };
            let granted = class(mode, shift) & wanted == wanted;
            prop_assert_eq!(Acl::from_mode(mode).permits(1, 1, &who(uid, gid, &[]), wanted), granted);
        }

        #[test]
        fn inheritance_grants_no_more_than_asked(acl in any_acl(), asked in 0..0o10000u16) {
            let got = inherit(Some(&acl), FileKind::Regular, asked, 0);
            prop_assert_eq!(got.permissions & !asked, 0);
            if let Some(access) = got.access {
                prop_assert_eq!(access.mode_bits(), got.permissions & 0o777);
            }
        }
    }
}
