//! Names, validated once, at the edge: what holds a [`Name`] never has to ask again.

use std::{borrow::Borrow, fmt, ops::Deref};

use crate::{FsError, FsResult, limits};

/// A directory entry's name: 1 to 255 bytes, any but `/` and NUL, neither `.` nor `..`.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Name([u8]);

impl Name {
    /// Errors: `NameTooLong` above 255 bytes, `InvalidArgument` for anything else that is no name.
    pub fn new(bytes: &[u8]) -> FsResult<&Self> {
        if bytes.len() > limits::NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        if bytes.is_empty() || bytes == b"." || bytes == b".." {
            return Err(FsError::InvalidArgument("an entry is named by 1 to 255 bytes other than . and .."));
        }
        if bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(FsError::InvalidArgument("a name holds neither / nor NUL"));
        }
        Ok(Self::trusted(bytes))
    }

    fn trusted(bytes: &[u8]) -> &Self {
        // SAFETY: `Name` is a transparent wrapper of `[u8]`, so both have one layout and one metadata.
        unsafe { &*(std::ptr::from_ref(bytes) as *const Self) }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl ToOwned for Name {
    type Owned = NameBuf;

    fn to_owned(&self) -> NameBuf {
        NameBuf(self.0.into())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// An owned [`Name`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameBuf(Box<[u8]>);

impl Deref for NameBuf {
    type Target = Name;

    fn deref(&self) -> &Name {
        Name::trusted(&self.0)
    }
}

impl Borrow<Name> for NameBuf {
    fn borrow(&self) -> &Name {
        self
    }
}

impl fmt::Debug for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// An extended attribute's full name, prefix included (`user.colour`): 1 to 255 bytes without NUL.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct XattrName([u8]);

impl XattrName {
    /// Errors: `RangeTooSmall` (ERANGE, as Linux has it) above 255 bytes or for none at all,
    /// `InvalidArgument` with a NUL inside.
    pub fn new(bytes: &[u8]) -> FsResult<&Self> {
        if bytes.is_empty() || bytes.len() > limits::XATTR_NAME_BYTES_MAX {
            return Err(FsError::RangeTooSmall);
        }
        if bytes.contains(&0) {
            return Err(FsError::InvalidArgument("the name of an extended attribute holds no NUL"));
        }
        // SAFETY: as for `Name::trusted`.
        Ok(unsafe { &*(std::ptr::from_ref(bytes) as *const Self) })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_but_slash_and_nul_make_a_name() {
        assert!(Name::new(b"\xff\n\x01").is_ok());
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert!(Name::new(b"...").is_ok());
    }

    #[test]
    fn what_is_no_name_is_refused_with_its_reason() {
        assert!(matches!(Name::new(&[b'x'; 256]), Err(FsError::NameTooLong)));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(matches!(Name::new(bad), Err(FsError::InvalidArgument(_))), "{bad:?}");
        }
    }
}
