//! The kernel's random numbers, for which the first who wants one waited 9 s on Linux 5.10: the machine has little that it could gather them from.

use std::{fs::File, os::fd::AsRawFd};

/// `struct rand_pool_info` (`linux/random.h`) with room for 32 bytes.
#[repr(C)]
struct Given {
    entropy_bits: i32,
    bytes: i32,
    room: [u8; 32],
}

/// `_IOW('R', 0x03, int[2])`.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203u32 as libc::Ioctl;

/// For a test they are random enough.
pub fn is_said_to_be_there() {
    let given = Given { entropy_bits: 256, bytes: 32, room: [7; 32] };
    let device = File::create("/dev/random").unwrap();
    // SAFETY: the kernel reads as many bytes of `given` as it says, which are there.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const given) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}
