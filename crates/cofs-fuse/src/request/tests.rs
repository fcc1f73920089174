//! The parser under real requests, real requests spoilt, and no requests at all.

mod malformed;

use std::{fs, path::Path};

use cofs_types::{AccessMode, InodeId};
use proptest::{collection::vec, prelude::*};
use zerocopy::IntoBytes;

use super::{
    any::{swallow, swallow_bytes, whole},
    *,
};
use crate::abi::InHeader;

const EXT: Dialect = Dialect { setxattr_ext: true, copies: true };

/// A message as `/dev/fuse` delivers it.
pub(crate) fn message(opcode: u32, fixed: &[u8], rest: &[u8]) -> Vec<u8> {
    let len = (size_of::<InHeader>() + fixed.len() + rest.len()) as u32;
    let header = InHeader { len, opcode, unique: 9, nodeid: 1, ..Default::default() };
    [header.as_bytes(), fixed, rest].concat()
}

/// One well-formed request of every kind that is served.
pub(crate) fn real() -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    let bytes = |value: &dyn Fn() -> Vec<u8>| value();
    let open = bytes(&|| abi::OpenIn { flags: libc::O_RDWR as u32, open_flags: 0 }.as_bytes().to_vec());
    let create =
        bytes(&|| abi::CreateIn { flags: 0o102, mode: 0o100_644, ..Default::default() }.as_bytes().to_vec());
    let copy =
        bytes(&|| abi::CopyFileRangeIn { nodeid_out: 3, len: 8, ..Default::default() }.as_bytes().to_vec());
    let setxattr = bytes(&|| abi::SetxattrIn { size: 3, ..Default::default() }.as_bytes().to_vec());
    let read = vec![0; size_of::<abi::ReadIn>()];
    let lseek = bytes(&|| abi::LseekIn { whence: 3, ..Default::default() }.as_bytes().to_vec());
    let setattr =
        bytes(&|| abi::SetattrIn { valid: u32::MAX, size: 1, ..Default::default() }.as_bytes().to_vec());
    let fallocate = bytes(&|| abi::FallocateIn { mode: 3, ..Default::default() }.as_bytes().to_vec());
    let write = bytes(&|| abi::WriteIn { size: 4, ..Default::default() }.as_bytes().to_vec());
    let forgets = bytes(&|| abi::BatchForgetIn { count: 2, dummy: 0 }.as_bytes().to_vec());
    let mknod = bytes(&|| abi::MknodIn { mode: 0o010_644, ..Default::default() }.as_bytes().to_vec());
    let rename2 = bytes(&|| abi::Rename2In { newdir: 1, flags: 2, padding: 0 }.as_bytes().to_vec());
    let one = 1_u64.as_bytes().to_vec();
    vec![
        (opcode::LOOKUP, vec![], b"name\0".to_vec()),
        (opcode::FORGET, one.clone(), vec![]),
        (opcode::GETATTR, vec![0; 16], vec![]),
        (opcode::SETATTR, setattr, vec![]),
        (opcode::READLINK, vec![], vec![]),
        (opcode::SYMLINK, vec![], b"name\0target\0".to_vec()),
        (opcode::MKNOD, mknod, b"name\0".to_vec()),
        (opcode::MKDIR, vec![0; 8], b"name\0".to_vec()),
        (opcode::UNLINK, vec![], b"name\0".to_vec()),
        (opcode::RMDIR, vec![], b"name\0".to_vec()),
        (opcode::RENAME, one.clone(), b"from\0to\0".to_vec()),
        (opcode::LINK, one.clone(), b"name\0".to_vec()),
        (opcode::OPEN, open.clone(), vec![]),
        (opcode::READ, read.clone(), vec![]),
        (opcode::WRITE, write, b"data".to_vec()),
        (opcode::STATFS, vec![], vec![]),
        (opcode::RELEASE, vec![0; 24], vec![]),
        (opcode::FSYNC, vec![0; 16], vec![]),
        (opcode::SETXATTR, setxattr, b"user.a\0val".to_vec()),
        (opcode::GETXATTR, vec![0; 8], b"user.a\0".to_vec()),
        (opcode::LISTXATTR, vec![0; 8], vec![]),
        (opcode::REMOVEXATTR, vec![], b"user.a\0".to_vec()),
        (opcode::FLUSH, vec![0; 24], vec![]),
        (opcode::OPENDIR, open, vec![]),
        (opcode::READDIR, read.clone(), vec![]),
        (opcode::RELEASEDIR, vec![0; 24], vec![]),
        (opcode::FSYNCDIR, vec![0; 16], vec![]),
        (opcode::ACCESS, vec![0; 8], vec![]),
        (opcode::CREATE, create.clone(), b"name\0".to_vec()),
        (opcode::INTERRUPT, one, vec![]),
        (opcode::DESTROY, vec![], vec![]),
        (opcode::BATCH_FORGET, forgets, vec![1; 32]),
        (opcode::FALLOCATE, fallocate, vec![]),
        (opcode::READDIRPLUS, read, vec![]),
        (opcode::RENAME2, rename2, b"from\0to\0".to_vec()),
        (opcode::LSEEK, lseek, vec![]),
        (opcode::COPY_FILE_RANGE, copy.clone(), vec![]),
        (opcode::SYNCFS, vec![0; 8], vec![]),
        (opcode::TMPFILE, create, b"#1\0".to_vec()),
        (opcode::STATX, vec![0; 24], vec![]),
        (opcode::COPY_FILE_RANGE_64, copy, vec![]),
    ]
}

/// Linux 5.10: fsx died of SIGBUS in what a copy had added to a file.
#[test]
fn a_kernel_that_does_not_learn_the_size_from_a_copy_is_told_to_copy_itself() {
    let copy = real().into_iter().find(|(opcode, ..)| *opcode == opcode::COPY_FILE_RANGE).unwrap();
    let bytes = message(copy.0, &copy.1, &copy.2);
    let asked = |minor| {
        let settled = Settled { minor, features: 0, transfer_bytes: 4096 };
        parse(&whole(&bytes).unwrap(), Dialect::of(&settled)).map(drop)
    };
    assert_eq!(asked(34), Err(Errno(libc::ENOSYS)));
    assert_eq!(asked(35), Ok(()));
}

#[test]
fn every_kind_is_understood_from_both_transports() {
    for (opcode, fixed, rest) in real() {
        let bytes = message(opcode, &fixed, &rest);
        let read = whole(&bytes).unwrap();
        let there = format!("{:?}", parse(&read, EXT).unwrap_or_else(|e| panic!("opcode {opcode}: {e:?}")));
        // An io_uring entry always has 128 bytes for the fixed arguments.
        let mut place = fixed.clone();
        place.resize(128, 0);
        let apart = Message::from_parts(read.header, &place, Some(&rest));
        assert_eq!(format!("{:?}", parse(&apart, EXT).unwrap()), there);
    }
}

/// The fuzzer `request` begins with a request of each kind, in a file with the kind's number.
#[test]
fn every_kind_is_a_seed_of_the_fuzzer() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/request");
    let kinds = real();
    for (opcode, fixed, rest) in &kinds {
        let mut seed = message(*opcode, fixed, rest);
        seed[38..40].copy_from_slice(&(fixed.len() as u16).to_ne_bytes()); // where swallow_bytes cuts
        let file = seeds.join(opcode.to_string());
        if std::env::var_os("COFS_WRITE_SEEDS").is_some() {
            fs::write(&file, &seed).unwrap();
        }
        let there = fs::read(&file).unwrap_or_default();
        assert_eq!(there, seed, "fuzz/seeds/request/{opcode}: COFS_WRITE_SEEDS=1 has this test write it");
    }
    assert_eq!(fs::read_dir(seeds).unwrap().count(), kinds.len(), "a seed of what is served no more");
}

#[test]
fn what_has_no_name_is_looked_up_as_itself() {
    for (name, expected) in [(&b".\0"[..], "Itself"), (b"/\0", "Itself"), (b"..\0", "Parent")] {
        let bytes = message(opcode::LOOKUP, &[], name);
        let parsed = parse(&whole(&bytes).unwrap(), EXT);
        assert_eq!(format!("{parsed:?}"), format!("Ok(Lookup({expected}))"));
    }
}

#[test]
fn the_supplementary_group_is_found_behind_other_extensions() {
    let other = [abi::ExtHeader { size: 16, kind: 1 }.as_bytes(), &[0; 8]].concat();
    let groups = [
        abi::ExtHeader { size: 16, kind: abi::EXT_GROUPS }.as_bytes(),
        abi::SuppGroups { nr_groups: 1 }.as_bytes(),
        &100_u32.to_ne_bytes(),
    ]
    .concat();
    let mut bytes = message(opcode::MKDIR, &[0; 8], &[&b"name\0\0\0\0"[..], &other, &groups].concat());
    bytes[36] = 4; // total_extlen, in units of 8 bytes
    let message = whole(&bytes).unwrap();
    assert_eq!(message.supplementary_group(), Some(100));
    assert!(matches!(parse(&message, EXT), Ok(Operation::Make { name, .. }) if name.as_bytes() == b"name"));
}

#[test]
fn arguments_arrive_where_they_belong() {
    let arg = abi::SetattrIn {
        valid: setattr::SIZE
            | setattr::ATIME
            | setattr::ATIME_NOW
            | setattr::MTIME
            | setattr::FH
            | setattr::KILL_SUIDGID,
        fh: 7,
        size: 10,
        mtime: (-5_i64) as u64,
        mtimensec: 9,
        uid: 3,
        ..Default::default()
    };
    let bytes = message(opcode::SETATTR, arg.as_bytes(), &[]);
    let Ok(Operation::Setattr { handle, change }) = parse(&whole(&bytes).unwrap(), EXT) else {
        panic!("no SETATTR")
    };
    assert_eq!(handle, Some(HandleId(7)));
    assert_eq!((change.size_bytes, change.uid, change.kill_set_id), (Some(10), None, true));
    assert_eq!(change.atime, Some(SetTime::Now));
    assert_eq!(change.mtime, Some(SetTime::To(Timestamp { secs: -5, nanos: 9 })));
    let nothing = abi::SetattrIn { valid: setattr::FH, fh: 7, ..Default::default() };
    let bytes = message(opcode::SETATTR, nothing.as_bytes(), &[]);
    let Ok(Operation::Setattr { change, .. }) = parse(&whole(&bytes).unwrap(), EXT) else {
        panic!("no SETATTR")
    };
    assert_eq!(change, SetAttributes::KILL_SET_ID);
    for (read_flags, cache) in [(0, true), (flag::READ_LOCKOWNER, false)] {
        let arg = abi::ReadIn { fh: 7, offset: 9, size: 4, read_flags, lock_owner: 1, ..Default::default() };
        let bytes = message(opcode::READ, arg.as_bytes(), &[]);
        let Ok(Operation::Read(of)) = parse(&whole(&bytes).unwrap(), EXT) else { panic!("no READ") };
        assert_eq!((of.handle, of.offset, of.size, of.for_cache), (HandleId(7), 9, 4, cache));
    }
    let flags = open_flags((libc::O_WRONLY | libc::O_APPEND | libc::O_DSYNC) as u32, 1);
    assert_eq!(
        (flags.access, flags.append, flags.data_sync, flags.sync),
        (AccessMode::Write, true, true, false)
    );
    assert!(flags.kill_set_id && !flags.truncate);
    assert_eq!(inode(0), Err(MALFORMED));
    assert_eq!(inode(1), Ok(InodeId::ROOT));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        swallow_bytes(&bytes);
    }

    #[test]
    fn arbitrary_arguments_of_known_kinds_never_panic(
        opcode in 0_u32..60,
        total_extlen in 0_u16..20,
        fixed in vec(any::<u8>(), 0..128),
        rest in vec(prop_oneof![Just(0), any::<u8>()], 0..200),
    ) {
        let mut bytes = message(opcode, &fixed, &rest);
        let len = bytes.len() as u32;
        let header = InHeader { len, opcode, total_extlen, nodeid: 1, ..Default::default() };
        swallow(&Message::from_parts(header, &fixed, Some(&rest)));
        bytes[36..38].copy_from_slice(&total_extlen.to_ne_bytes());
        swallow(&whole(&bytes).unwrap());
    }

    #[test]
    fn spoilt_requests_never_panic(
        kind in any::<prop::sample::Index>(),
        spoils in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let requests = real();
        let (opcode, fixed, rest) = kind.get(&requests);
        let mut bytes = message(*opcode, fixed, rest);
        for (at, value) in spoils {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        swallow_bytes(&bytes);
    }
}
