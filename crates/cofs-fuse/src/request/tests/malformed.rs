//! What is no sound request, and the errno that each is answered with.

use super::*;

/// Why a request of these bytes is refused, whichever transport brings it; `len` is what the header says.
fn refusal(opcode: u32, len: usize, fixed: &[u8], rest: &[u8], total_extlen: u16) -> Option<i32> {
    let header =
        InHeader { len: len as u32, opcode, unique: 9, nodeid: 1, total_extlen, ..Default::default() };
    let bytes = [header.as_bytes(), fixed, rest].concat();
    let read = parse(&whole(&bytes).unwrap(), EXT).err();
    let mut place = fixed.to_vec();
    place.resize(128, 0xEE);
    let apart = parse(&Message::from_parts(header, &place, Some(rest)), EXT).err();
    assert_eq!(read, apart, "opcode {opcode}, {len} bytes: both transports agree");
    read.map(|errno| errno.0)
}

/// Likewise where the length is told as it is.
fn refused(opcode: u32, fixed: &[u8], rest: &[u8]) -> Option<i32> {
    refusal(opcode, size_of::<InHeader>() + fixed.len() + rest.len(), fixed, rest, 0)
}

#[test]
fn every_kind_that_is_served_is_tried_here() {
    let tried: Vec<_> = real().into_iter().map(|(opcode, ..)| opcode).collect();
    for opcode in 0..4096 {
        let known = !matches!(refused(opcode, &[], &[]), Some(libc::ENOSYS | libc::ENOTTY));
        assert_eq!(known, tried.contains(&opcode) || opcode == opcode::NOTIFY_REPLY, "opcode {opcode}");
    }
}

#[test]
fn every_kind_cut_short_anywhere_is_einval() {
    for (opcode, fixed, rest) in real() {
        assert_eq!(refused(opcode, &fixed, &rest), None, "opcode {opcode}, whole");
        for end in 0..fixed.len() {
            assert_eq!(refused(opcode, &fixed[..end], b""), Some(libc::EINVAL), "opcode {opcode}, {end}");
        }
        // Names that have lost their NULs, second names and values that are not there, fewer bytes than were counted.
        for end in 0..rest.len() {
            let refused = refused(opcode, &fixed, &rest[..end]);
            assert_eq!(refused, Some(libc::EINVAL), "opcode {opcode}, {end} behind the arguments");
        }
    }
}

#[test]
fn every_kind_that_is_longer_or_shorter_than_it_says_is_einval() {
    for (opcode, fixed, rest) in real() {
        let right = size_of::<InHeader>() + fixed.len() + rest.len();
        for wrong in [0, right - 1, right + 129, u32::MAX as usize] {
            let refused = refusal(opcode, wrong, &fixed, &rest, 0);
            assert_eq!(refused, Some(libc::EINVAL), "opcode {opcode} of {right} bytes says {wrong}");
        }
        let header = InHeader { len: right as u32 + 1, opcode, nodeid: 1, ..Default::default() };
        let bytes = [header.as_bytes(), &fixed, &rest].concat();
        assert_eq!(parse(&whole(&bytes).unwrap(), EXT).unwrap_err(), MALFORMED);
    }
}

/// A list of extensions behind a MKDIR: the group found, or the errno.
fn group(extensions: &[u8], total_extlen: u16) -> Result<Option<u32>, i32> {
    let mut bytes = message(opcode::MKDIR, &[0; 8], &[b"name\0\0\0\0", extensions].concat());
    bytes[36..38].copy_from_slice(&total_extlen.to_ne_bytes());
    let message = whole(&bytes).unwrap();
    parse(&message, EXT).map(|_| message.supplementary_group()).map_err(|errno| errno.0)
}

fn extension(size: u32, kind: u32, words: &[u32]) -> Vec<u8> {
    [size, kind].iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn extensions_that_are_none_are_einval() {
    let groups = |size, words: &[u32]| extension(size, abi::EXT_GROUPS, words);
    let other = extension(16, 1, &[0, 0]);
    for (what, extensions, total_extlen, outcome) in [
        ("none", vec![], 0, Ok(None)),
        ("a group", groups(16, &[1, 100]), 2, Ok(Some(100))),
        ("no group", groups(16, &[0, 100]), 2, Ok(None)),
        ("the first of three", groups(24, &[3, 7, 8, 9]), 3, Ok(Some(7))),
        ("behind another", [other.clone(), groups(16, &[1, 100])].concat(), 4, Ok(Some(100))),
        ("only another", other.clone(), 2, Ok(None)),
        ("more groups than there is room for", groups(16, &[2, 100]), 2, Err(libc::EINVAL)),
        ("as many groups as there can be", groups(16, &[u32::MAX, 100]), 2, Err(libc::EINVAL)),
        ("no count", groups(8, &[]), 1, Err(libc::EINVAL)),
        ("no bytes at all", groups(0, &[1, 100]), 2, Err(libc::EINVAL)),
        ("less than its own head", groups(4, &[1, 100]), 2, Err(libc::EINVAL)),
        ("longer than the list", groups(24, &[1, 100]), 2, Err(libc::EINVAL)),
        ("not aligned", extension(12, 1, &[0, 0]), 2, Err(libc::EINVAL)),
        ("a list longer than the message", groups(16, &[1, 100]), 100, Err(libc::EINVAL)),
        ("the longest list there can be", vec![], u16::MAX, Err(libc::EINVAL)),
    ] {
        assert_eq!(group(&extensions, total_extlen), outcome, "{what}");
    }
    // Over the name: it has lost its end.
    assert_eq!(group(&[], 1), Err(libc::EINVAL));
    for (opcode, fixed, rest) in real() {
        let len = size_of::<InHeader>() + fixed.len() + rest.len();
        let refused = refusal(opcode, len, &fixed, &rest, u16::MAX);
        assert_eq!(refused, Some(libc::EINVAL), "opcode {opcode}");
    }
}

#[test]
fn bad_names_have_the_errno_that_the_caller_deserves() {
    let one = 1_u64.as_bytes().to_vec();
    let named = [
        (opcode::LOOKUP, vec![]),
        (opcode::UNLINK, vec![]),
        (opcode::RMDIR, vec![]),
        (opcode::SYMLINK, vec![]),
        (opcode::RENAME, one.clone()),
        (opcode::RENAME2, [1_u64, 0].as_bytes().to_vec()),
        (opcode::LINK, one),
        (opcode::MKDIR, vec![0; 8]),
        (opcode::MKNOD, abi::MknodIn { mode: 0o010_644, ..Default::default() }.as_bytes().to_vec()),
        (opcode::CREATE, vec![0; 16]),
    ];
    let with = |name: &[u8]| [name, b"\0second\0"].concat();
    for (opcode, fixed) in &named {
        let refused = |name: &[u8]| refused(*opcode, fixed, &with(name));
        assert_eq!(refused(&[b'x'; 255]), None, "opcode {opcode}");
        assert_eq!(refused(&[b'x'; 256]), Some(libc::ENAMETOOLONG), "opcode {opcode}");
        assert_eq!(refused(b""), Some(libc::EINVAL), "opcode {opcode}");
        assert_eq!(refused(b"a/b"), Some(libc::EINVAL), "opcode {opcode}");
        let special = if *opcode == opcode::LOOKUP { None } else { Some(libc::EINVAL) };
        assert_eq!((refused(b"."), refused(b"..")), (special, special), "opcode {opcode}");
    }
    let set = abi::SetxattrIn { size: 0, ..Default::default() }.as_bytes().to_vec();
    for (opcode, fixed) in
        [(opcode::REMOVEXATTR, vec![]), (opcode::GETXATTR, vec![0; 8]), (opcode::SETXATTR, set)]
    {
        let refused = |name: &[u8]| refused(opcode, &fixed, &[name, b"\0"].concat());
        assert_eq!(refused(&[b'x'; 255]), None, "opcode {opcode}");
        assert_eq!(refused(&[b'x'; 256]), Some(libc::ERANGE), "opcode {opcode}");
        assert_eq!(refused(b""), Some(libc::ERANGE), "opcode {opcode}");
    }
}

#[test]
fn arguments_that_cannot_be_meant_have_an_errno_each() {
    fn bytes<T: IntoBytes + zerocopy::Immutable>(of: T) -> Vec<u8> {
        of.as_bytes().to_vec()
    }
    let write = |size| bytes(abi::WriteIn { size, ..Default::default() });
    let setxattr = |size, flags| bytes(abi::SetxattrIn { size, flags, ..Default::default() });
    let setattr = |of: abi::SetattrIn| bytes(of);
    let rename2 = |newdir, flags| bytes(abi::Rename2In { newdir, flags, padding: 0 });
    let mknod = |mode| bytes(abi::MknodIn { mode, ..Default::default() });
    let fallocate = |mode| bytes(abi::FallocateIn { mode, ..Default::default() });
    let lseek = |whence| bytes(abi::LseekIn { whence, ..Default::default() });
    let forgets = |count| bytes(abi::BatchForgetIn { count, dummy: 0 });
    let copy = bytes(abi::CopyFileRangeIn { nodeid_out: 0, ..Default::default() });
    let target = |len| [b"name\0".to_vec(), vec![b'x'; len], vec![0]].concat();
    let no_time = abi::SetattrIn { valid: setattr::MTIME, mtimensec: 1_000_000_000, ..Default::default() };
    let too_large = abi::SetattrIn { valid: setattr::SIZE, size: u64::MAX, ..Default::default() };
    for (what, opcode, fixed, rest, errno) in [
        ("more data than came", opcode::WRITE, write(5), b"data".to_vec(), libc::EINVAL),
        ("all data there can be", opcode::WRITE, write(u32::MAX), b"data".to_vec(), libc::EINVAL),
        ("more of a value than came", opcode::SETXATTR, setxattr(4, 0), b"a\0val".to_vec(), libc::EINVAL),
        ("all of a value", opcode::SETXATTR, setxattr(u32::MAX, 0), b"a\0val".to_vec(), libc::EINVAL),
        ("a flag that is none", opcode::SETXATTR, setxattr(3, 4), b"a\0val".to_vec(), libc::EINVAL),
        ("more nodes than came", opcode::BATCH_FORGET, forgets(3), vec![1; 32], libc::EINVAL),
        ("all nodes there can be", opcode::BATCH_FORGET, forgets(u32::MAX), vec![1; 32], libc::EINVAL),
        ("an empty target", opcode::SYMLINK, vec![], target(0), libc::ENOENT),
        ("too long a target", opcode::SYMLINK, vec![], target(4096), libc::ENAMETOOLONG),
        ("an unknown kind", opcode::MKNOD, mknod(0o170_644), b"name\0".to_vec(), libc::EINVAL),
        ("nowhere", opcode::RENAME, bytes(0_u64), b"from\0to\0".to_vec(), libc::EINVAL),
        ("nowhere", opcode::RENAME2, rename2(0, 0), b"from\0to\0".to_vec(), libc::EINVAL),
        ("an unknown flag", opcode::RENAME2, rename2(1, 8), b"from\0to\0".to_vec(), libc::EINVAL),
        ("flags that exclude each other", opcode::RENAME2, rename2(1, 3), b"f\0t\0".to_vec(), libc::EINVAL),
        ("a second name of no bytes", opcode::RENAME, bytes(1_u64), b"from\0\0".to_vec(), libc::EINVAL),
        ("nothing linked", opcode::LINK, bytes(0_u64), b"name\0".to_vec(), libc::EINVAL),
        ("copied nowhere", opcode::COPY_FILE_RANGE, copy.clone(), vec![], libc::EINVAL),
        ("copied nowhere", opcode::COPY_FILE_RANGE_64, copy, vec![], libc::EINVAL),
        ("not what is served", opcode::FALLOCATE, fallocate(8), vec![], libc::EOPNOTSUPP),
        ("a whence of the kernel's own", opcode::LSEEK, lseek(0), vec![], libc::EINVAL),
        ("a second that is none", opcode::SETATTR, setattr(no_time), vec![], libc::EINVAL),
        ("too large", opcode::SETATTR, setattr(too_large), vec![], libc::EFBIG),
        ("ioctl(2)", opcode::IOCTL, vec![0; 32], vec![], libc::ENOTTY),
        ("poll(2)", opcode::POLL, vec![0; 24], vec![], libc::ENOSYS),
        ("what nobody knows", 999, vec![], vec![], libc::ENOSYS),
    ] {
        assert_eq!(refused(opcode, &fixed, &rest), Some(errno), "{what}, opcode {opcode}");
    }
}
