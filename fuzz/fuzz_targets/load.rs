//! `cofs load` of any bytes: it loads a volume that can be opened and checked, or refuses it, and then the
//! engine holds none.
#![no_main]

use std::sync::Arc;

use cofs_engine::{Engine, MemoryEngine};
use cofs_namespace::{Namespace, OpenInodes, check::Checker, dump};
use cofs_types::InodeId;
use libfuzzer_sys::fuzz_target;

struct Closed;

impl OpenInodes for Closed {
    fn is_open(&self, _: InodeId) -> bool {
        false
    }
}

fuzz_target!(|bytes: &[u8]| {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let loaded = dump::load(&*engine, &mut &*bytes);
    let opened = Namespace::open(Arc::clone(&engine), Arc::new(Closed));
    assert_eq!(loaded.is_ok(), opened.is_ok());
    if loaded.is_ok() {
        let mut text = Vec::new();
        dump::dump(&*engine, &mut text).expect("what was loaded can be dumped");
        Checker::new(&*engine).check().expect("what was loaded can be checked");
    }
});
