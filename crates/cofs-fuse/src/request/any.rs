//! Any bytes as a request of the kernel: what the fuzzer and the tests call. Nothing is expected of the outcome but that there is one.

use zerocopy::FromBytes;

use super::{Dialect, Message, Operation, parse};
use crate::abi::{ForgetOne, InHeader};

/// What an io_uring entry has for the fixed arguments.
const FIXED_BYTES: usize = 128;

/// A message in one piece; `None` when it is not even a header.
pub fn whole(bytes: &[u8]) -> Option<Message<'_>> {
    Some(Message::from_bytes(Message::header_of(bytes)?, bytes))
}

/// Parses, and walks what has a length of its own.
pub fn swallow(message: &Message<'_>) {
    let _ = message.supplementary_group();
    for setxattr_ext in [false, true] {
        if let Ok(Operation::BatchForget(list)) = parse(message, Dialect { setxattr_ext, copies: true }) {
            assert!(list.iter().count() * size_of::<ForgetOne>() <= message.header.len as usize);
        }
    }
}

/// The bytes as they are, and with the length that they have, or few would get any further.
pub fn swallow_bytes(bytes: &[u8]) {
    swallow_both_ways(bytes);
    let mut honest = bytes.to_vec();
    say_length(&mut honest);
    swallow_both_ways(&honest);
}

/// Has the header tell how long the request is.
pub fn say_length(bytes: &mut [u8]) {
    let len = (bytes.len() as u32).to_ne_bytes();
    bytes.iter_mut().zip(len).for_each(|(byte, right)| *byte = right);
}

/// In one piece, as `/dev/fuse` delivers them, and as an io_uring entry does, which keeps the fixed arguments apart: how many
/// bytes those are says the header's padding, of which the parser makes no use.
fn swallow_both_ways(bytes: &[u8]) {
    let Some(message) = whole(bytes) else { return };
    swallow(&message);
    let Ok((header, arguments)) = InHeader::read_from_prefix(bytes) else { return };
    let mut place = [0; FIXED_BYTES];
    let end = usize::from(header.padding).min(arguments.len()).min(place.len());
    let (fixed, rest) = arguments.split_at(end);
    place[..end].copy_from_slice(fixed);
    swallow(&Message::from_parts(header, &place, Some(rest)));
}
