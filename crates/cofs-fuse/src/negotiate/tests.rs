//! What is settled with which kernel: alone, and with kernels that are played at the other end of a socket.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use super::*;

const WISHES: Wishes = Wishes {
    kernel_checks: true,
    passthrough: true,
    handles: true,
    stack_depth: 2,
    uring: true,
    transfer_bytes: 1 << 20,
};

fn offer(features: u64) -> Offer {
    Offer { major: 7, minor: 45, readahead_bytes_max: 131_072, features }
}

#[test]
fn nothing_is_claimed_that_the_kernel_did_not_offer() {
    let (settled, out) = settle(offer(init::ASYNC_READ | init::INIT_EXT), WISHES);
    assert_eq!(settled.feature_names(), ["async_read", "init_ext"]);
    assert_eq!((out.flags2, out.max_stack_depth), (0, 0));
    assert_eq!(settled.transfer_bytes, 32 * PAGE_BYTES, "no MAX_PAGES");
}

#[test]
fn a_modern_kernel_is_asked_for_everything_and_the_high_bits_travel_in_flags2() {
    let (settled, out) = settle(offer(u64::MAX), WISHES);
    assert_eq!(settled.feature_names().len(), NAMES.len() - 1, "all but one of a pair");
    assert_eq!(out.flags2, (1 << 2) | (1 << 3) | (1 << 4) | (1 << 5) | (1 << 7) | (1 << 9));
    assert_eq!((out.max_pages, out.max_write, out.max_stack_depth), (256, 1 << 20, 2));
    let (settled, _) = settle(offer(u64::MAX), Wishes { transfer_bytes: 1 << 20, ..Wishes::default() });
    let unwished = init::PASSTHROUGH | init::OVER_IO_URING | init::POSIX_ACL | init::EXPORT_SUPPORT;
    assert!(!settled.has(unwished));
    assert!(settled.has(init::NO_EXPORT_SUPPORT));
}

/// Linux 5.10: by an open that truncates, a stranger emptied a file that kept its set-id bits.
#[test]
fn an_open_truncates_only_where_the_kernel_says_whose_bits_go() {
    let without = |feature: u64| settle(offer(!feature), WISHES).0;
    assert!(without(0).has(init::ATOMIC_O_TRUNC | init::HANDLE_KILLPRIV_V2));
    assert!(without(init::ATOMIC_O_TRUNC).has(init::HANDLE_KILLPRIV_V2));
    assert!(!without(init::HANDLE_KILLPRIV_V2).has(init::ATOMIC_O_TRUNC));
}

#[test]
fn flags2_counts_only_with_init_ext() {
    let parse = |flags: u32| {
        let init = InitIn { major: 7, minor: 36, max_readahead: 0, flags };
        let bytes = [init.as_bytes(), &u32::MAX.to_ne_bytes()].concat();
        Offer::parse(&bytes).unwrap().features >> 32
    };
    assert_eq!(parse(0), 0);
    assert_eq!(parse(init::INIT_EXT as u32), u64::from(u32::MAX));
    assert!(Offer::parse(&[0; 15]).is_none());
}

/// What Linux 5.4 (7.31) offers: no flag above the 26th.
const LINUX_5_4: u32 = (1 << 26) - 1;

fn init(major: u32, minor: u32, flags: u32, more: &[u8]) -> Vec<u8> {
    let body = InitIn { major, minor, max_readahead: 131_072, flags };
    let len = (size_of::<InHeader>() + size_of::<InitIn>() + more.len()) as u32;
    let header = InHeader { len, opcode: opcode::INIT, unique: 2, ..Default::default() };
    [header.as_bytes(), body.as_bytes(), more].concat()
}

/// As since 7.36: `flags2` and 11 words for later.
fn long_init(major: u32, minor: u32) -> Vec<u8> {
    let flags2 = u32::MAX.to_ne_bytes();
    init(major, minor, u32::MAX, &[&flags2[..], &[0; 44]].concat())
}

/// A kernel that has these messages to say: what was settled with it, and the answers that it got. It is gone where it hangs up.
fn with_kernel(says: &[Vec<u8>], hangs_up: bool) -> (Result<Settled, MountError>, Vec<(OutHeader, Vec<u8>)>) {
    let (kernel, device) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    for message in says {
        assert_eq!(rustix::io::write(&kernel, message), Ok(message.len()));
    }
    let mut kernel = Some(kernel);
    if hangs_up {
        kernel = None;
    }
    // Whoever waits for more than a kernel has to say fails, and does not hang.
    sockopt::set_socket_timeout(&device, sockopt::Timeout::Recv, Some(Duration::from_secs(5))).unwrap();
    let outcome = negotiate(device.as_fd(), WISHES);
    drop(device);
    (outcome, kernel.map(answers).unwrap_or_default())
}

fn answers(kernel: OwnedFd) -> Vec<(OutHeader, Vec<u8>)> {
    let mut answers = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = rustix::io::read(&kernel, &mut buffer[..]) {
        let (header, body) = OutHeader::read_from_prefix(&buffer[..len]).unwrap();
        assert_eq!((header.len as usize, header.unique), (len, 2));
        answers.push((header, body.to_vec()));
    }
    answers
}

/// The one answer, which every kernel since 7.23 takes at this length.
fn settled_with(says: &[Vec<u8>]) -> (Settled, InitOut) {
    let (outcome, answers) = with_kernel(says, false);
    let (header, body) = answers.last().unwrap();
    assert_eq!((answers.len(), header.error, body.len()), (says.len(), 0, 64));
    (outcome.unwrap(), InitOut::read_from_bytes(body).unwrap())
}

fn refusal(says: &[Vec<u8>]) -> (MountError, Vec<i32>) {
    let (outcome, answers) = with_kernel(says, false);
    (outcome.unwrap_err(), answers.iter().map(|(header, _)| header.error).collect())
}

#[test]
fn the_oldest_kernel_is_asked_for_nothing_that_it_does_not_know() {
    let (settled, out) = settled_with(&[init(7, 31, LINUX_5_4, &[])]);
    assert_eq!((out.major, out.minor, out.max_readahead), (7, 31, 131_072));
    assert_eq!((u64::from(out.flags), out.flags2, out.max_stack_depth), (settled.features, 0, 0));
    assert_eq!((settled.minor, settled.transfer_bytes, out.max_pages), (31, 1 << 20, 256));
    assert!(settled.has(init::MAX_PAGES | init::PARALLEL_DIROPS | init::POSIX_ACL));
    for later in [
        init::HANDLE_KILLPRIV_V2,
        init::SETXATTR_EXT,
        init::INIT_EXT,
        init::CREATE_SUPP_GROUP,
        init::PASSTHROUGH,
        init::HAS_RESEND,
        init::OVER_IO_URING,
    ] {
        assert!(!settled.has(later), "{later:#x}");
    }
}

#[test]
fn a_kernel_of_the_newest_version_or_beyond_it_is_asked_in_ours() {
    for minor in [45, 46, 99] {
        let (settled, out) = settled_with(&[long_init(7, minor)]);
        assert_eq!((settled.minor, out.major, out.minor), (45, 7, 45));
        assert!(settled.has(init::PASSTHROUGH | init::OVER_IO_URING));
        assert_eq!(u64::from(out.flags2), settled.features >> 32);
    }
}

#[test]
fn a_kernel_that_is_too_old_is_named_and_told() {
    for (major, minor) in [(7, 30), (7, 0), (6, 99), (0, 0)] {
        let (error, told) = refusal(&[init(major, minor, u32::MAX, &[])]);
        assert!(matches!(error, MountError::KernelTooOld { major: a, minor: b } if (a, b) == (major, minor)));
        let words = error.to_string();
        assert!(words.contains(&format!("FUSE {major}.{minor}")) && words.contains("7.31"), "{words}");
        assert_eq!(told, [-libc::EPROTO]);
    }
}

#[test]
fn a_kernel_of_a_later_protocol_is_told_ours_and_asks_again_in_it() {
    let (outcome, answers) = with_kernel(&[long_init(8, 1), long_init(7, 45)], false);
    let bodies: Vec<_> = answers.iter().map(|(_, body)| InitOut::read_from_bytes(body).unwrap()).collect();
    assert_eq!(bodies.iter().map(|out| (out.major, out.minor)).collect::<Vec<_>>(), [(7, 45), (7, 45)]);
    assert_eq!((bodies[0].flags, bodies[0].max_write), (0, 0), "nothing is settled by the first");
    assert!(bodies[1].max_write > 0);
    assert_eq!(outcome.unwrap().minor, 45);

    let (error, told) = refusal(&[long_init(8, 1), init(7, 30, 0, &[])]);
    assert!(matches!(error, MountError::KernelTooOld { major: 7, minor: 30 }));
    assert_eq!(told, [0, -libc::EPROTO]);
    let (error, told) = refusal(&[long_init(8, 1), long_init(8, 1)]);
    assert!(error.to_string().contains("newer protocol"), "{error}");
    assert_eq!(told, [0, -libc::EPROTO], "nobody goes round for ever");
}

#[test]
fn what_is_no_init_is_an_error_and_has_no_answer() {
    let whole = long_init(7, 45);
    let other = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        bytes
    };
    let cut = |len: usize| {
        let mut bytes = whole[..len].to_vec();
        bytes[0] = len as u8;
        bytes
    };
    for message in [
        vec![0xFF],
        vec![0; 39],
        vec![0xFF; 8192],
        cut(40),
        cut(55),
        whole[..60].to_vec(),
        other(0, 200),
        other(4, opcode::LOOKUP as u8),
    ] {
        let (error, told) = refusal(std::slice::from_ref(&message));
        assert!(error.to_string().contains("not INIT"), "{error}");
        assert!(told.is_empty(), "{message:?}");
    }
}

#[test]
fn a_connection_that_ends_is_an_error() {
    let said = |says: &[Vec<u8>]| with_kernel(says, true).0.unwrap_err().to_string();
    assert!(said(&[]).contains("ended before INIT"), "{}", said(&[]));
    // Nobody is there to hear the answer.
    for says in [long_init(7, 45), long_init(8, 1)] {
        assert!(said(std::slice::from_ref(&says)).contains("Broken pipe"), "{}", said(&[says]));
    }
}
