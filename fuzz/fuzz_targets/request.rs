//! Requests of any bytes, as if the kernel had sent them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| cofs_fuse::fuzz_request(bytes));
