//! What is said between the coordinator and its workers, in frames (see `frame`). A worker joins, then does what
//! it is ordered to, one order after the other, and answers each.
//!
//! Versions must be equal: the first frame says so in a form that all versions read, and no other frame
//! is exchanged by two that differ.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Environment, Kind, Options, meeting::Ways, worker::Done};

/// Of these messages, and of what suites do.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (3)");

/// What all ranks of a run must agree on.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Job {
    pub suite: Kind,
    pub processes: usize,
    pub repeats: usize,
    pub warm_ups: usize,
    pub cold: bool,
    pub sync: bool,
    pub drop_caches: bool,
    pub seconds: Option<f64>,
    pub versus: bool,
    pub beside: bool,
}

impl Job {
    pub fn of(options: &Options) -> Self {
        let mut kind = options.suite.clone();
        kind.suite_mut().spell_out();
        let suite = kind.suite();
        // What stays for a later run, or is taken away from an earlier one, is there once.
        let once = suite.leaves() != suite.finds();
        Self {
            processes: options.processes.clamp(1, suite.processes_max()),
            repeats: if once { 1 } else { options.repeats.max(1) },
            warm_ups: if once { 0 } else { options.warm_ups },
            suite: kind,
            cold: options.cold,
            sync: options.sync,
            drop_caches: options.drop_caches,
            seconds: options.seconds,
            versus: options.versus.is_some(),
            beside: options.beside,
        }
    }
}

/// What the coordinator tells a worker that it started itself, on the same machine.
#[derive(Serialize, Deserialize, Debug)]
pub struct Setup {
    pub job: Job,
    pub rank: usize,
    /// The directory, and the one it is compared with.
    pub targets: Vec<PathBuf>,
    pub ways: Ways,
}

/// A worker's first word.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Join {
    pub version: String,
    pub rank: usize,
    /// A [`Job`], of a version that may be another.
    pub job: Value,
    pub host: String,
    pub process: u32,
    /// Of the running kernel: workers with the same one share a clock and caches.
    pub boot: String,
    pub can_drop_caches: bool,
    pub environments: Vec<Environment>,
}

/// What a worker is to do.
#[derive(Serialize, Deserialize, Debug)]
pub enum Order {
    /// Look whether the targets can be worked in; write nothing.
    Check,
    /// Begin a round in this target, in the directory of this name (or in the target itself).
    Enter { target: usize, name: Option<String> },
    /// The round is over: what the suite holds open is closed.
    Leave,
    /// Tell the time.
    Ping,
    /// Make the kernel write and forget.
    Settle { sync: bool, drop_caches: bool },
    /// Wait until the machine has little to do.
    Rest,
    /// Do a phase, from this time of the worker's clock on.
    Phase { name: String, begin: u64 },
    /// What all brought to [`Observer::agree`](crate::Observer::agree).
    Agreed(Vec<u64>),
    /// The run is over, well or not.
    End { error: Option<String> },
}

/// What a worker answers.
#[derive(Serialize, Deserialize, Debug)]
pub enum Answer {
    /// To `Check`, `Enter`, `Leave`, `Settle` and `Rest`.
    Ready,
    Time(u64),
    Agree(u64),
    Done(Box<Done>),
    Failed(String),
}

/// What two jobs differ in, in words; nothing if they are equal.
pub fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            names.into_iter().find_map(|name| {
                let (a, b) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                let inner = difference(a, b)?;
                // The name of the innermost says most.
                Some(if a.is_object() && b.is_object() { inner } else { format!("{name}: {inner}") })
            })
        }
        (a, b) if a == b => None,
        (a, b) => Some(format!("{}, not {}", short(b), short(a))),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let ours = json!({"suite": {"metarates": {"files": 10}}, "processes": 2});
        assert_eq!(difference(&ours, &ours), None);
        let theirs = json!({"suite": {"metarates": {"files": 11}}, "processes": 2});
        assert_eq!(difference(&ours, &theirs).unwrap(), "files: 11, not 10");
        let theirs = json!({"suite": {"tree": {}}, "processes": 2});
        assert!(difference(&ours, &theirs).unwrap().starts_with("metarates: null"));
        assert!(difference(&ours, &json!(7)).is_some());
    }
}
