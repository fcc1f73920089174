//! How a pool is, for those who choose among pools and those who tell of them.

use cofs_types::{FsResult, limits::POOL_PROBE_INTERVAL};

use super::Pool;
use crate::{LeftBehind, PoolSpace, store::Space};

impl Pool {
    /// Whether others should be asked for an object first.
    pub fn is_refusing(&self) -> bool {
        self.health.is_failed()
            || self.free.silent().is_some()
            || self.takes.owes()
            || self.refused.lock().is_some_and(|since| since.elapsed() < POOL_PROBE_INTERVAL)
    }

    /// statvfs: see [`FreeSpace::get`](crate::free_space::FreeSpace::get); nothing of a failed pool.
    pub fn space(&self) -> FsResult<Space> {
        self.run("statvfs of a pool", || self.free.get())
    }

    /// Whether the pool is there and answers, asked anew where that is not known of the last second. Waits for it as [`space`](Self::space)
    /// does.
    pub fn answers(&self) -> bool {
        !self.health.is_failed() && {
            // An error is an answer, too.
            let _ = self.free.get();
            self.free.silent().is_none()
        }
    }

    /// Whether the pool can be expected to hand out an object at once. Waits for nothing.
    pub fn is_prompt(&self) -> bool {
        !self.health.is_failed() && self.free.silent().is_none() && !self.takes.owes() && !self.takes.owed()
    }

    /// What was said last of its space, for who must not wait.
    pub fn known_space(&self) -> Option<Space> {
        if self.health.is_failed() { None } else { self.free.known().or_else(|| self.space().ok()) }
    }

    pub fn report(&self) -> PoolSpace {
        let space = self.space().unwrap_or_default();
        let damage = if self.health.is_failed() { None } else { self.free.damage() };
        PoolSpace {
            id: self.config.id,
            name: self.config.name.clone(),
            tier: self.config.tier,
            health: self.health.report(),
            silent: self.free.silent(),
            damage: damage.map(|damage| damage.tell(&self.config.directory)),
            space,
            ready: self.ready.len(),
        }
    }

    /// Somebody has given up waiting for an object, perhaps of this pool.
    pub fn given_up(&self) {
        self.takes.given_up();
    }

    pub fn left_behind(&self) -> Vec<LeftBehind> {
        self.left_behind.lock().clone()
    }

    /// What was left behind is in order.
    pub fn judged(&self) {
        self.left_behind.lock().clear();
        self.numbers.judged();
    }
}
