//! Requests that come again, because the process which had them in hand has ended.
//!
//! That process may have done what was asked, and not have said so. Most requests can be served twice. Of the others it can be told
//! what became of them, because the kernel holds the directory's lock from before it sends a change of names until it has the
//! answer, and nobody else changes names: what it asks to be made was not there when it first asked, what it asks to be removed was. So
//!
//! - *exists* is the answer to one who has made it himself: he gets what is there;
//! - *not there* is the answer to one who has removed or moved it himself: it is done.
//!
//! A process that finds that those before it have died moments after their starts may take the requests that come again for the cause,
//! and refuse them all ([`Resent::Refused`]).
//!
//! What cannot be told (an exchange of two names, which a second time would undo the first; a rename that leaves a whiteout, which a
//! second time would put that over the file; an attribute that was to be new, or to be
//! removed, and that nobody's lock tells of) is EIO: whoever asked must look for himself, and the kernel must, too.

use cofs_types::{InodeId, Name, RenameMode, XattrMode};

use crate::{
    abi::{InHeader, UNIQUE_RESEND},
    errno::Errno,
    reply::Reply,
    request::Operation,
};

/// The answer where nobody can know what was done.
pub(crate) const UNKNOWN: Errno = Errno(libc::EIO);

/// What becomes of requests that come again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Resent {
    #[default]
    Served,
    /// They are answered EIO: one of them may be what the processes before this one have died of.
    Refused,
}

/// Names of which the kernel may believe what is not so, when an operation in `parent` has failed although it may have been done.
pub(crate) fn names<'a>(
    operation: &Operation<'a>,
    parent: InodeId,
) -> impl Iterator<Item = (InodeId, &'a Name)> {
    let (one, other) = match *operation {
        Operation::Make { name, .. }
        | Operation::Link { name, .. }
        | Operation::Create { name, .. }
        | Operation::Unlink(name)
        | Operation::Rmdir(name) => (Some((parent, name)), None),
        Operation::Rename { from, to_parent, to, .. } => (Some((parent, from)), Some((to_parent, to))),
        _ => (None, None),
    };
    one.into_iter().chain(other)
}

/// Whether the request was sent before.
pub(crate) fn is_again(header: &InHeader) -> bool {
    header.unique & UNIQUE_RESEND != 0
}

/// What the first attempt may have left, if it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doubt<'a> {
    /// Nothing that a second attempt would stumble over.
    None,
    /// This name.
    Made(&'a Name),
    /// A name less.
    Gone,
    /// The old name again, with something else: two names exchanged, or a whiteout.
    Swapped,
    /// An outcome that looks like this failure.
    Fails(i32),
}

/// What a second attempt's outcome means.
#[derive(Debug)]
pub(crate) enum Verdict<'a> {
    Is(Result<Reply, Errno>),
    /// The first attempt has made what has this name: that is the answer.
    Made(&'a Name),
}

impl<'a> Doubt<'a> {
    /// Of an operation that is about to be tried again. What must be new may be the first attempt's: such a file is opened.
    pub fn of(operation: &mut Operation<'a>) -> Self {
        match operation {
            Operation::Make { name, .. } | Operation::Link { name, .. } => Self::Made(name),
            Operation::Create { flags, .. } => {
                flags.exclusive = false;
                Self::None
            }
            Operation::Rename { mode: RenameMode::Exchange | RenameMode::Whiteout { .. }, .. } => {
                Self::Swapped
            }
            Operation::Unlink(_) | Operation::Rmdir(_) | Operation::Rename { .. } => Self::Gone,
            Operation::Setxattr { mode: XattrMode::Create, .. } => Self::Fails(libc::EEXIST),
            Operation::Removexattr(_) => Self::Fails(libc::ENODATA),
            _ => Self::None,
        }
    }

    pub fn judge(self, outcome: Result<Reply, Errno>) -> Verdict<'a> {
        match (self, outcome) {
            (Self::Made(name), Err(Errno(libc::EEXIST))) => Verdict::Made(name),
            (Self::Gone, Err(Errno(libc::ENOENT))) => Verdict::Is(Ok(Reply::DONE)),
            (Self::Fails(errno), Err(Errno(failed))) if failed == errno => Verdict::Is(Err(UNKNOWN)),
            (_, outcome) => Verdict::Is(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use cofs_types::{AccessMode, OpenFlags, XattrName};

    use super::*;
    use crate::reply::Body;

    fn judged(doubt: Doubt<'_>, errno: i32) -> Option<i32> {
        match doubt.judge(Err(Errno(errno))) {
            Verdict::Is(Ok(Reply::Placed(Body::Short(0)))) => Some(0),
            Verdict::Is(Err(Errno(errno))) => Some(errno),
            Verdict::Made(name) => (name.as_bytes() == b"n").then_some(-1),
            other @ Verdict::Is(_) => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_the_first_attempt_has_done_is_success_and_what_it_may_have_done_is_an_error() {
        let name = Name::new(b"n").unwrap();
        let attribute = XattrName::new(b"user.n").unwrap();
        let to_parent = cofs_types::InodeId::new(9).unwrap();
        let rename = |mode| Operation::Rename { from: name, to_parent, to: name, mode };
        let set = |mode| Operation::Setxattr { name: attribute, value: b"", mode, kill_set_gid: false };
        for (mut operation, errno, answer) in [
            (Operation::Link { ino: to_parent, name }, libc::EEXIST, -1),
            (Operation::Link { ino: to_parent, name }, libc::EMLINK, libc::EMLINK),
            (Operation::Unlink(name), libc::ENOENT, 0),
            (Operation::Unlink(name), libc::EACCES, libc::EACCES),
            (Operation::Rmdir(name), libc::ENOENT, 0),
            (Operation::Rmdir(name), libc::ENOTEMPTY, libc::ENOTEMPTY),
            (rename(RenameMode::Replace), libc::ENOENT, 0),
            (rename(RenameMode::NoReplace), libc::ENOENT, 0),
            (set(XattrMode::Create), libc::EEXIST, libc::EIO),
            (set(XattrMode::Replace), libc::ENODATA, libc::ENODATA),
            (Operation::Removexattr(attribute), libc::ENODATA, libc::EIO),
            (Operation::Statfs, libc::EEXIST, libc::EEXIST),
        ] {
            assert_eq!(judged(Doubt::of(&mut operation), errno), Some(answer), "{operation:?}");
        }
        for mode in [RenameMode::Exchange, RenameMode::Whiteout { replace: true }] {
            assert_eq!(Doubt::of(&mut rename(mode)), Doubt::Swapped);
        }
    }

    #[test]
    fn a_file_that_must_be_new_may_be_the_first_attempts() {
        let (name, mut flags) = (Name::new(b"n").unwrap(), OpenFlags::new(AccessMode::Write));
        flags.exclusive = true;
        let mut create = Operation::Create { name, new: new_file(), flags };
        assert_eq!(Doubt::of(&mut create), Doubt::None);
        assert!(matches!(create, Operation::Create { flags: OpenFlags { exclusive: false, .. }, .. }));
    }

    fn new_file() -> cofs_types::NewInode<'static> {
        let kind = cofs_types::FileKind::Regular;
        cofs_types::NewInode { kind, permissions: 0o644, umask: 0, rdev: 0, target: b"" }
    }
}
