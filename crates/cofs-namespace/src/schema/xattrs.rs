//! Small extended attributes, packed into the inode's record: `name length, name, value length, value`,
//! ascending by name.

use bytes::Bytes;
use cofs_types::{FsResult, XattrName};

use super::wire::{Reader, put_number};

/// A packed list, known to be well-formed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SmallXattrs(Bytes);

impl SmallXattrs {
    /// Errors: `Corrupt` unless `packed` is a list in order.
    pub fn parse(packed: Bytes) -> FsResult<Self> {
        let mut reader = Reader::unversioned(&packed, "extended attributes");
        let mut last: Option<&[u8]> = None;
        while !reader.is_empty() {
            let (name, _) = read_one(&mut reader)?;
            if last.is_some_and(|last| last >= name) {
                return Err(reader.corrupt());
            }
            last = Some(name);
        }
        Ok(Self(packed))
    }

    pub fn packed(&self) -> &[u8] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Name and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut reader = Reader::unversioned(&self.0, "extended attributes");
        std::iter::from_fn(move || read_one(&mut reader).ok())
    }

    pub fn get(&self, name: &XattrName) -> Option<Bytes> {
        self.iter().find(|(n, _)| *n == name.as_bytes()).map(|(_, value)| self.0.slice_ref(value))
    }

    /// The list with `name` set (`Some`) or removed (`None`).
    #[must_use]
    pub fn with(&self, name: &XattrName, value: Option<&[u8]>) -> Self {
        let mut all: Vec<_> = self.iter().filter(|(n, _)| *n != name.as_bytes()).collect();
        if let Some(value) = value {
            let at = all.partition_point(|(n, _)| *n < name.as_bytes());
            all.insert(at, (name.as_bytes(), value));
        }
        let mut out = Vec::with_capacity(self.0.len() + 3);
        for (name, value) in all {
            out.push(name.len() as u8); // a name has 255 bytes at most
            out.extend_from_slice(name);
            put_number(&mut out, value.len() as u64);
            out.extend_from_slice(value);
        }
        Self(out.into())
    }
}

fn read_one<'a>(reader: &mut Reader<'a>) -> FsResult<(&'a [u8], &'a [u8])> {
    let len = usize::from(reader.byte()?);
    let name = reader.bytes(len)?;
    XattrName::new(name).map_err(|_| reader.corrupt())?;
    let len = usize::try_from(reader.number()?).map_err(|_| reader.corrupt())?;
    Ok((name, reader.bytes(len)?))
}
