//! What `kill -9` may take: nothing that was acknowledged. And what an end in order may take under load (`ends.rs`).
//!
//! `./test crash failpoints` runs these: they format a volume, work on its mount, end the daemon at a random time or
//! at a named place, mount again, and compare with what had been acknowledged; then `cofs fsck` must
//! find nothing. Operations in flight when the daemon ended may or may not have happened, as a whole; of a write to an object
//! bytes may have arrived in part, of one to an inline file a whole request. Run by plain `cargo test` the cases say that they were skipped.

mod disk;
mod ends;
mod judge;
mod mapping;
mod rounds;
mod sweep;
mod volume;
mod work;
mod world;
