//! What the pools hold and how they are.

use std::time::Duration;

use cofs_types::PoolId;

use crate::{Tier, store::Space};

/// Whether a pool can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolHealth {
    Healthy,
    /// Its identity cannot be read, or is another's; `why` says which, `advice` what to do where that follows from it. Looked at
    /// again at most once a second.
    Failed {
        errno: i32,
        why: String,
        advice: Option<&'static str>,
    },
}

/// One pool's space and state.
#[derive(Clone, Debug)]
pub struct PoolSpace {
    pub id: PoolId,
    pub name: String,
    pub tier: Tier,
    pub health: PoolHealth,
    /// For how long it has not said how much space it has, if that is unusually long: whatever is asked of it may take as long.
    pub silent: Option<Duration>,
    /// What is lost of it, and what to do, where no object can be made in it for that; it is there, and may be read.
    pub damage: Option<String>,
    /// Zero while the pool is failed. At most a second old, if it is not silent.
    pub space: Space,
    /// Objects created ahead of need.
    pub ready: usize,
}
