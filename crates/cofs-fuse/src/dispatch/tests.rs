//! Whatever comes, one answer goes back to whoever waits for one, and none to nobody.

#[path = "../../tests/common/canned.rs"]
mod canned;

use std::sync::atomic::Ordering;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{
    abi::{UNIQUE_RESEND, opcode},
    reply::SHORT_BYTES,
    request::{
        any::{say_length, whole},
        tests::{message, real},
    },
};
use canned::Canned;

const DIALECT: Dialect = Dialect { setxattr_ext: true, copies: true };
const HEADER_BYTES: usize = size_of::<InHeader>();
const PLACE_BYTES: usize = 128;

fn service() -> Service<Canned> {
    Service {
        fs: Arc::default(),
        dialect: DIALECT,
        authority: Authority::Checked,
        only: None,
        notifier: Arc::default(),
        resent: Resent::Served,
        interrupts: Arc::default(),
        forgets: Arc::default(),
        pool: Pool::new().unwrap(),
        over_network: false,
    }
}

/// A request as a transport has it, and room for the answer.
struct Held {
    bytes: Vec<u8>,
    /// How many bytes of arguments io_uring keeps apart; `None` over `/dev/fuse`.
    apart: Option<usize>,
    short: [u8; SHORT_BYTES],
    answer: Vec<u8>,
}

impl Held {
    fn new(bytes: &[u8], apart: Option<usize>) -> Self {
        Self { bytes: bytes.to_vec(), apart, short: [0; SHORT_BYTES], answer: vec![0; 8192] }
    }
}

fn message_of(bytes: &[u8], apart: Option<usize>) -> Option<Message<'_>> {
    let whole = whole(bytes)?;
    let Some(fixed_bytes) = apart else { return Some(whole) };
    let (place, payload) = bytes[HEADER_BYTES..].split_at(fixed_bytes);
    Some(Message::from_parts(whole.header, place, Some(payload)))
}

impl Frame for Held {
    fn header(&self) -> Option<InHeader> {
        Message::header_of(&self.bytes)
    }

    fn parts(&mut self, header: InHeader) -> Option<(Message<'_>, Short<'_>)> {
        let message = message_of(&self.bytes, self.apart)?;
        assert_eq!(message.header.unique, header.unique);
        Some((message, Short(&mut self.short)))
    }

    fn long(&mut self) -> &mut [u8] {
        &mut self.answer
    }
}

/// What the service must say to the request, as the parser has understood it.
fn expected(header: &InHeader, message: &Message<'_>) -> Result<(), Errno> {
    let mut operation = request::parse(message, DIALECT)?;
    if header.nodeid == 0 && !matches!(operation, Operation::Destroy) {
        return Err(Errno(libc::EINVAL));
    }
    if resent::is_again(header) && Doubt::of(&mut operation) == Doubt::Swapped {
        return Err(resent::UNKNOWN);
    }
    match operation {
        Operation::Getxattr { room: 1..5, .. } | Operation::Listxattr { room: 1..7 } => {
            Err(Errno(libc::ERANGE))
        }
        _ => Ok(()),
    }
}

/// Serves the request and looks at what goes back.
fn check(service: &Service<Canned>, mut held: Held) {
    let before = service.fs.forgotten.load(Ordering::Relaxed);
    let answer = cofs_face::run(service.serve(&mut held));
    let forgets = service.fs.forgotten.load(Ordering::Relaxed) != before;
    let Some(message) = message_of(&held.bytes, held.apart) else {
        return assert!(answer.is_none(), "nobody asked");
    };
    let header = message.header;
    let sound = request::parse(&message, DIALECT).is_ok();
    assert!(!forgets || sound, "nothing is forgotten for a malformed request");
    if matches!(
        header.opcode,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY
    ) {
        return assert!(answer.is_none(), "nobody waits for {header:?}");
    }
    let answer = answer.unwrap_or_else(|| panic!("somebody waits for {header:?}"));
    assert_eq!(answer.unique, header.unique);
    assert_eq!(answer.outcome.map(drop), expected(&header, &message), "{header:?}");
    assert!(match answer.outcome {
        Ok(Body::Short(len)) => len <= held.short.len(),
        Ok(Body::Long(len)) => len <= held.answer.len(),
        Err(_) => true,
    });
}

#[test]
fn every_kind_is_answered_once_or_not_at_all() {
    let service = service();
    for (opcode, fixed, rest) in real() {
        for (nodeid, unique) in [(1_u64, 9_u64), (0, 9), (1, UNIQUE_RESEND | 9)] {
            let mut bytes = message(opcode, &fixed, &rest);
            bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
            bytes[16..24].copy_from_slice(&nodeid.to_ne_bytes());
            check(&service, Held::new(&bytes, None));
            check(&service, Held::new(&bytes, Some(fixed.len())));
        }
    }
    for opcode in [opcode::IOCTL, opcode::NOTIFY_REPLY, opcode::INIT, 0, 999, u32::MAX] {
        check(&service, Held::new(&message(opcode, &[0; 64], &[]), None));
    }
    service.pool.close();
}

#[test]
fn a_node_that_is_none_is_einval() {
    let service = service();
    for (opcode, fixed, rest) in real() {
        let mut bytes = message(opcode, &fixed, &rest);
        bytes[16..24].fill(0);
        let answer = cofs_face::run(service.serve(&mut Held::new(&bytes, None)));
        let without_node = opcode == opcode::DESTROY || request::is_unanswered(opcode);
        let outcome = answer.map(|answer| answer.outcome.map(drop));
        assert_eq!(outcome == Some(Err(Errno(libc::EINVAL))), !without_node, "opcode {opcode}: {outcome:?}");
    }
    service.pool.close();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn arbitrary_bytes_are_answered_once_or_not_at_all(
        requests in vec((vec(any::<u8>(), 0..400), any::<bool>(), 0_u32..60, any::<Index>()), 1..4),
    ) {
        let service = service();
        for (mut bytes, honest, opcode, apart) in requests {
            let apart = bytes.len().checked_sub(HEADER_BYTES).map(|len| apart.index(len + 1).min(PLACE_BYTES));
            if honest && apart.is_some() {
                say_length(&mut bytes);
                bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
                bytes[36..38].fill(0);
            }
            check(&service, Held::new(&bytes, None));
            check(&service, Held::new(&bytes, apart));
        }
        service.pool.close();
    }

    #[test]
    fn spoilt_requests_are_answered_once_or_not_at_all(
        requests in vec((any::<Index>(), vec((any::<Index>(), any::<u8>()), 0..4), any::<Index>(), any::<bool>()), 1..20),
    ) {
        let (service, kinds) = (service(), real());
        for (kind, spoils, end, honest) in requests {
            let (opcode, fixed, rest) = kind.get(&kinds);
            let mut bytes = message(*opcode, fixed, rest);
            for (at, value) in spoils {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if !honest {
                bytes.truncate(end.index(bytes.len() + 1));
            } else if bytes.len() >= HEADER_BYTES {
                bytes.truncate(HEADER_BYTES + end.index(bytes.len() + 1 - HEADER_BYTES));
                say_length(&mut bytes);
            }
            check(&service, Held::new(&bytes, None));
            let apart = bytes.len().checked_sub(HEADER_BYTES).map(|len| fixed.len().min(len));
            check(&service, Held::new(&bytes, apart));
        }
        service.pool.close();
    }
}
