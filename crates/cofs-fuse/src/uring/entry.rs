//! One place for a request in a queue: memory that the kernel fills, and that the answer is taken from.
//!
//! The kernel and we take turns: a completion gives the memory to us, a commit gives it back. In between it
//! belongs to the entry's task, wherever that is polled.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use zerocopy::{FromBytes, IntoBytes};

use crate::{
    abi::{InHeader, OutHeader, UringEntInOut, UringReqHeader},
    dispatch::{Answer, Frame},
    errno::Errno,
    memory::{PAGE_BYTES, Pages},
    reply::{Body, SHORT_BYTES, Short},
    request::Message,
};

const OP_IN_AT: usize = size_of::<[u8; 128]>();
const IN_OUT_AT: usize = OP_IN_AT + size_of::<[u8; 128]>();
const HEADER_BYTES: usize = size_of::<UringReqHeader>();
/// The place of a short answer: a cache line of its own, in the page of the headers.
const SHORT_AT: usize = HEADER_BYTES.next_multiple_of(64);
const _: () = assert!(SHORT_AT + SHORT_BYTES <= PAGE_BYTES);

/// What an entry takes: the kernel wants its headers apart from the payload, and we give them a page.
pub(crate) fn bytes(transfer_bytes: usize) -> usize {
    HEADER_BYTES.next_multiple_of(PAGE_BYTES) + payload_bytes(transfer_bytes)
}

fn payload_bytes(transfer_bytes: usize) -> usize {
    transfer_bytes.max(2 * PAGE_BYTES)
}

/// Where the kernel is to find an entry's memory: `iovec`s of headers and payload, as it wants them.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub iovecs: [libc::iovec; 2],
}

// SAFETY: the addresses are only handed to the kernel; nothing is accessed through them here.
unsafe impl Send for Addresses {}

#[derive(Debug)]
pub(crate) struct Entry {
    header: Pages,
    payload: Pages,
    /// The number under which the finished request is to be committed, for the worker.
    commit_id: Arc<AtomicU64>,
}

impl Entry {
    pub fn new(transfer_bytes: usize) -> std::io::Result<Self> {
        Ok(Self {
            header: Pages::new(HEADER_BYTES)?,
            payload: Pages::new(payload_bytes(transfer_bytes))?,
            commit_id: Arc::default(),
        })
    }

    pub fn addresses(&self) -> Addresses {
        let of = |pages: &Pages| libc::iovec { iov_base: pages.address().cast(), iov_len: pages.len() };
        Addresses { iovecs: [of(&self.header), of(&self.payload)] }
    }

    /// Copies a short answer from beside the request to where the kernel takes it from: the payload, from which the request borrows until it
    /// is served.
    fn put_short(&mut self, len: usize) -> usize {
        match (self.header.get(SHORT_AT..SHORT_AT + len), self.payload.get_mut(..len)) {
            (Some(short), Some(place)) => place.copy_from_slice(short),
            _ => return 0,
        }
        len
    }

    fn in_out(&self) -> Option<UringEntInOut> {
        self.header.get(IN_OUT_AT..).and_then(|bytes| Some(UringEntInOut::read_from_prefix(bytes).ok()?.0))
    }

    /// Where `finish` leaves the number to commit.
    pub fn commit_id(&self) -> Arc<AtomicU64> {
        self.commit_id.clone()
    }

    /// Puts the answer where the kernel takes it from. An entry must be answered to be of use again, so that what needs no answer is answered with EIO.
    pub fn finish(&mut self, answer: Option<Answer>) {
        let unique = self.header().map_or(0, |header| header.unique);
        let answer = answer.unwrap_or(Answer { unique, outcome: Err(Errno(libc::EIO)) });
        let (len, error) = match answer.outcome {
            Ok(Body::Short(len)) => (self.put_short(len), 0),
            Ok(Body::Long(len)) => (len, 0),
            Err(errno) => (0, -errno.0),
        };
        let total = (size_of::<OutHeader>() + len) as u32;
        let header = OutHeader { len: total, error, unique: answer.unique };
        let in_out = UringEntInOut { payload_sz: len as u32, ..self.in_out().unwrap_or_default() };
        self.commit_id.store(in_out.commit_id, Ordering::Release);
        for (at, bytes) in [(0, header.as_bytes()), (IN_OUT_AT, in_out.as_bytes())] {
            if let Some(place) = self.header.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
    }
}

impl Frame for Entry {
    fn header(&self) -> Option<InHeader> {
        Message::header_of(&self.header)
    }

    fn parts(&mut self, header: InHeader) -> Option<(Message<'_>, Short<'_>)> {
        let payload_bytes = self.in_out()?.payload_sz as usize;
        let (headers, place) = self.header.split_at_mut_checked(SHORT_AT)?;
        let fixed = headers.get(OP_IN_AT..IN_OUT_AT)?;
        let message = Message::from_parts(header, fixed, self.payload.get(..payload_bytes));
        Some((message, Short(place.first_chunk_mut()?)))
    }

    fn long(&mut self) -> &mut [u8] {
        &mut self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        abi::opcode,
        request::{Dialect, parse},
    };

    #[test]
    fn an_answer_stands_where_the_kernel_looks_for_it() {
        let mut entry = Entry::new(1 << 17).unwrap();
        let request = InHeader { unique: 77, ..Default::default() };
        entry.header[..40].copy_from_slice(request.as_bytes());
        let in_out = UringEntInOut { commit_id: 77, payload_sz: 3, ..Default::default() };
        entry.header[256..288].copy_from_slice(in_out.as_bytes());
        entry.parts(request).unwrap().1.0[..5].copy_from_slice(b"short");
        entry.finish(Some(Answer { unique: 77, outcome: Ok(Body::Short(5)) }));
        assert_eq!(entry.payload[..6], *b"short\0");
        assert_eq!(entry.in_out().unwrap().payload_sz, 5);
        entry.long()[..6].copy_from_slice(b"longer");
        entry.finish(Some(Answer { unique: 77, outcome: Ok(Body::Long(5)) }));
        assert_eq!(entry.payload[..6], *b"longer");
        assert_eq!(entry.header[..16], [21, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(entry.in_out().unwrap().payload_sz, 5);
        assert_eq!(entry.commit_id().load(Ordering::Acquire), 77);
        entry.finish(None);
        assert_eq!(entry.header[4..8], (-libc::EIO).to_ne_bytes());
    }

    #[test]
    fn an_entry_takes_what_it_is_reckoned_at() {
        for transfer_bytes in [1, 1 << 17, 1 << 20] {
            let entry = Entry::new(transfer_bytes).unwrap();
            assert_eq!(entry.header.len() + entry.payload.len(), bytes(transfer_bytes));
        }
    }

    #[test]
    fn a_payload_larger_than_its_place_is_a_malformed_request() {
        let mut entry = Entry::new(1 << 17).unwrap();
        let header = InHeader { unique: 5, opcode: opcode::STATFS, len: 40, ..Default::default() };
        entry.header[..40].copy_from_slice(header.as_bytes());
        let parsed = |entry: &mut Entry| {
            let (message, _) = entry.parts(entry.header().unwrap()).unwrap();
            assert_eq!(message.header.unique, 5);
            parse(&message, Dialect { setxattr_ext: true, copies: true }).map(drop)
        };
        assert_eq!(parsed(&mut entry), Ok(()));
        let in_out = UringEntInOut { payload_sz: u32::MAX, ..Default::default() };
        entry.header[256..288].copy_from_slice(in_out.as_bytes());
        assert_eq!(parsed(&mut entry), Err(Errno(libc::EINVAL)));
    }
}
