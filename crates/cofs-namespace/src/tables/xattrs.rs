//! Extended attributes: small ones inside the inode's record, large ones in records `X` that it covers.

use std::ops::ControlFlow;

use bytes::Bytes;
use cofs_engine::Change;
use cofs_types::{FsError, FsResult, InodeId, XattrName, limits};

use crate::{
    schema::{Inode, Key, decode_chunk, encode_chunk, key, ranges},
    tx::Tx,
};

/// `security.capability`: what a program may do beyond its user; it does not outlive a change of the file.
pub const CAPABILITY: &[u8] = b"security.capability";

pub fn get(tx: &Tx<'_>, ino: InodeId, inode: &Inode, name: &XattrName) -> FsResult<Option<Bytes>> {
    if let Some(value) = inode.xattrs.get(name) {
        return Ok(Some(value));
    }
    get_large(tx, ino, inode, name)
}

fn get_large(tx: &Tx<'_>, ino: InodeId, inode: &Inode, name: &XattrName) -> FsResult<Option<Bytes>> {
    if inode.large_xattrs == 0 {
        return Ok(None);
    }
    let Some(value) = tx.get_covered(&key::xattr(ino, name))? else { return Ok(None) };
    let bytes = decode_chunk(&value, limits::XATTR_VALUE_BYTES_MAX)?;
    Ok(Some(value.slice_ref(bytes)))
}

/// Sets (`Some`) or removes (`None`) an attribute, in `inode` or beside it. The caller saves the inode.
pub fn set(
    tx: &mut Tx<'_>,
    ino: InodeId,
    inode: &mut Inode,
    name: &XattrName,
    value: Option<&[u8]>,
) -> FsResult<()> {
    let was_large = get_large(tx, ino, inode, name)?.is_some();
    let small = inode.xattrs.with(name, value.filter(|v| v.len() <= limits::XATTR_SMALL_BYTES_MAX));
    let fits = small.packed().len() <= limits::XATTR_INODE_BYTES_MAX;
    let (small, large) = match value {
        Some(v) if v.len() > limits::XATTR_SMALL_BYTES_MAX => (small, value),
        Some(_) if !fits => (inode.xattrs.with(name, None), value),
        _ => (small, None),
    };
    inode.xattrs = small;
    let key = key::xattr(ino, name);
    if let Some(value) = large {
        tx.put_covered(&key, encode_chunk(value));
    } else if was_large {
        tx.delete_covered(&key);
    }
    inode.large_xattrs = inode.large_xattrs + u32::from(large.is_some()) - u32::from(was_large);
    Ok(())
}

/// Visits every name.
pub fn names(tx: &Tx<'_>, ino: InodeId, inode: &Inode, visit: &mut dyn FnMut(&[u8])) -> FsResult<()> {
    inode.xattrs.iter().for_each(|(name, _)| visit(name));
    large_names(tx, ino, inode, visit)
}

fn large_names(tx: &Tx<'_>, ino: InodeId, inode: &Inode, visit: &mut dyn FnMut(&[u8])) -> FsResult<()> {
    if inode.large_xattrs == 0 {
        return Ok(());
    }
    tx.store.scan(&ranges::xattrs(ino), &mut |key, _| {
        let Key::Xattr { name, .. } = Key::parse(key)? else {
            return Err(FsError::corrupt("a key outside of its range"));
        };
        visit(name.as_bytes());
        Ok(ControlFlow::Continue(()))
    })
}

/// A change of the file takes its capabilities away, whoever makes it (Linux, `security_inode_killpriv`).
pub fn drop_capability(tx: &mut Tx<'_>, ino: InodeId, inode: &mut Inode) -> FsResult<()> {
    if inode.xattrs.is_empty() && inode.large_xattrs == 0 {
        return Ok(());
    }
    let name = XattrName::new(CAPABILITY)?;
    match get(tx, ino, inode, name)? {
        Some(_) => set(tx, ino, inode, name, None),
        None => Ok(()),
    }
}

/// The removal of all large attributes.
pub fn removal(tx: &Tx<'_>, ino: InodeId, inode: &Inode, changes: &mut Vec<Change>) -> FsResult<()> {
    large_names(tx, ino, inode, &mut |name| {
        if let Ok(name) = XattrName::new(name) {
            changes.push(Change::delete(key::xattr(ino, name)));
        }
    })
}
