//! Memory that is written next is fetched ahead.
//!
//! The journal's pages and the pieces that values stand in are written from front to back, and come round again when the processor has
//! long given them up. A store to such a place costs nothing by itself, but the lock that is let go of behind it waits until it is done. Between
//! two commits behind FUSE there are microseconds.

#![allow(unsafe_code, reason = "an instruction of the processor")]

const LINE_BYTES: usize = 64;

/// Has the processor fetch so many bytes from `at` on, for writing. Any address will do: nothing that can be seen changes, and where there is
/// no memory nothing is done.
pub(super) fn fetch(at: *const u8, bytes: usize) {
    for offset in (0..bytes).step_by(LINE_BYTES) {
        let line = at.wrapping_add(offset);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing, and is allowed of any address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_ET0>(line.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_changed_and_no_address_is_wrong() {
        let bytes: Vec<u8> = (0..=255).collect();
        fetch(bytes.as_ptr(), bytes.len());
        assert!(bytes.iter().copied().eq(0..=255));
        fetch(bytes.as_ptr(), 1 << 20);
        fetch(std::ptr::null(), 1 << 10);
    }
}
