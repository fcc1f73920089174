//! What a directory may hold and still count as empty for who makes a part of a volume of it.

/// Who is about to make something of a directory puts this into it first, so that of two who come for it one is refused, and what an
/// interrupted one has left can be told from what is another's.
pub const CLAIM: &str = "cofs-claim";
/// The next one, before it takes that one's place.
pub const CLAIM_NEW: &str = "cofs-claim.new";

/// Whether an entry of this name takes nothing from a directory's being empty: claims, and what a file system is born with.
pub fn is_as_good_as_empty_with(name: &[u8]) -> bool {
    [CLAIM, CLAIM_NEW, "lost+found"].iter().any(|known| name == known.as_bytes())
}
