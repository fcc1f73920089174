//! ACLs of any bytes: what parses is canonical.
#![no_main]

use cofs_namespace::acl::Acl;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(acl)) = Acl::parse(bytes) {
        assert_eq!(Acl::parse(&acl.encode()).ok().flatten(), Some(acl));
    }
});
