//! What the pools hold and how they are.

use cofs_types::PoolId;

use crate::{Tier, store::Space};

/// Whether a pool can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolHealth {
    Healthy,
    /// Its identity cannot be read, or is another's; `why` says which. Looked at again at most once a second.
    Failed {
        errno: i32,
        why: String,
    },
}

/// One pool's space and state.
#[derive(Clone, Debug)]
pub struct PoolSpace {
    pub id: PoolId,
    pub name: String,
    pub tier: Tier,
    pub health: PoolHealth,
    /// Zero while the pool is failed. At most a second old.
    pub space: Space,
    /// Objects created ahead of need.
    pub ready: usize,
}
