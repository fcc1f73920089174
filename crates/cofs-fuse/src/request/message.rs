//! A request's bytes cut into header, fixed arguments, what follows them, and extensions.
//!
//! Whether these fit together is decided here, once. What does not (it is not as long as it says, or its extensions are none) is a message all
//! the same, because whoever sent it is to be answered; only what has no header is none ([`Message::header_of`]).

use zerocopy::FromBytes;

use super::{MALFORMED, Parsed};
use crate::abi::{EXT_GROUPS, ExtHeader, InHeader, SuppGroups};

/// Extensions, and the whole of them, are as long as a multiple of this.
const EXTENSION_ALIGN: usize = 8;

/// A request cut into its parts.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub header: InHeader,
    pub(super) parts: Parsed<Parts<'a>>,
}

/// What follows the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    /// The fixed arguments where the transport keeps them apart.
    pub fixed: Option<&'a [u8]>,
    pub rest: &'a [u8],
    group: Option<u32>,
}

impl<'a> Message<'a> {
    /// `None` when it is not even a header, so that nobody can be answered.
    pub fn header_of(bytes: &[u8]) -> Option<InHeader> {
        Some(InHeader::read_from_prefix(bytes).ok()?.0)
    }

    /// A message read from `/dev/fuse`, of which the header has been read already.
    pub fn from_bytes(header: InHeader, bytes: &'a [u8]) -> Self {
        let whole = header.len as usize == bytes.len();
        let rest = bytes.get(size_of::<InHeader>()..).filter(|_| whole).ok_or(MALFORMED);
        Self { header, parts: rest.and_then(|rest| Parts::new(&header, None, rest)) }
    }

    /// A message of an io_uring entry: `place` has the fixed arguments at its front; `payload` is `None` when it claims more than there is room for. How
    /// many bytes of `place` are meant, the header's length tells.
    pub fn from_parts(header: InHeader, place: &'a [u8], payload: Option<&'a [u8]>) -> Self {
        let apart = payload.and_then(|payload| {
            let fixed_bytes =
                (header.len as usize).checked_sub(size_of::<InHeader>())?.checked_sub(payload.len())?;
            Some((place.get(..fixed_bytes)?, payload))
        });
        let parts =
            apart.ok_or(MALFORMED).and_then(|(fixed, payload)| Parts::new(&header, Some(fixed), payload));
        Self { header, parts }
    }

    /// The supplementary group that the kernel names for a new inode (`CREATE_SUPP_GROUP`), if it does.
    pub fn supplementary_group(&self) -> Option<u32> {
        self.parts.ok()?.group
    }
}

impl<'a> Parts<'a> {
    fn new(header: &InHeader, fixed: Option<&'a [u8]>, rest: &'a [u8]) -> Parsed<Self> {
        let extension_bytes = usize::from(header.total_extlen) * EXTENSION_ALIGN;
        let at = rest.len().checked_sub(extension_bytes).ok_or(MALFORMED)?;
        let (rest, extensions) = rest.split_at_checked(at).ok_or(MALFORMED)?;
        Ok(Self { fixed, rest, group: group_among(extensions)? })
    }
}

/// The first supplementary group that a list of extensions names.
fn group_among(mut extensions: &[u8]) -> Parsed<Option<u32>> {
    let mut group = None;
    while !extensions.is_empty() {
        let (head, _) = ExtHeader::read_from_prefix(extensions).map_err(|_| MALFORMED)?;
        let bytes = head.size as usize;
        let (extension, others) = extensions.split_at_checked(bytes).ok_or(MALFORMED)?;
        // One that does not even hold its own head, of no bytes at all among others, would be read for ever.
        let body = extension.get(size_of::<ExtHeader>()..).ok_or(MALFORMED)?;
        if !bytes.is_multiple_of(EXTENSION_ALIGN) {
            return Err(MALFORMED);
        }
        if head.kind == EXT_GROUPS {
            group = group.or(first_group(body)?);
        }
        extensions = others;
    }
    Ok(group)
}

fn first_group(body: &[u8]) -> Parsed<Option<u32>> {
    let (groups, list) = SuppGroups::read_from_prefix(body).map_err(|_| MALFORMED)?;
    let list_bytes = (groups.nr_groups as usize).saturating_mul(size_of::<u32>());
    let list = list.get(..list_bytes).ok_or(MALFORMED)?;
    Ok(u32::read_from_prefix(list).ok().map(|(group, _)| group))
}
