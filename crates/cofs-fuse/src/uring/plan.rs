//! Which queues a mount has, who serves them, and how much memory they may take.
//!
//! The kernel wants one queue for each *possible* CPU before it uses any, and puts a request on the queue of
//! the CPU that it was made on. A CPU that this process may run on gets a worker pinned to it. The others
//! (offline, or outside our cpuset, where other processes may still run) share one unpinned worker with
//! shallow queues: hot-plug and containers work, and cost little.
//!
//! Where each request may have to wait, a CPU gets a crew: as many workers as its queue has places, each with one. The kernel gives
//! a request to the place that was freed last, so that those who wait hold up nobody, and while nobody does it is always the same few that serve.

use cofs_types::limits;
use rustix::thread::CpuSet;

use super::entry;
use crate::{
    dev_fuse,
    memory::{self, PAGE_BYTES},
};

/// Below this, large transfers would cost too many trips.
const TRANSFER_BYTES_MIN: usize = 128 << 10;

/// A worker's share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkerPlan {
    pub pin: Option<usize>,
    pub queues: Vec<u16>,
    /// Requests in hand on each queue.
    pub depth: usize,
    /// Likewise of a crew: there is one such worker for each request that can be in hand, so that it may wait itself.
    pub waits: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub workers: Vec<WorkerPlan>,
    /// Largest READ or WRITE, so that all memory for requests stays within its bound.
    pub transfer_bytes: usize,
}

impl Plan {
    /// The plan for this machine; with `crews` where each request may have to wait. Errors: in words, where the number of CPUs cannot be
    /// learned.
    pub fn of_machine(crews: bool) -> Result<Self, String> {
        let path = "/sys/devices/system/cpu/possible";
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let possible = count(text.trim()).ok_or_else(|| format!("{path}: not a list of CPUs: {text:?}"))?;
        let ours =
            rustix::thread::sched_getaffinity(None).map_err(|error| format!("sched_getaffinity: {error}"))?;
        Ok(Self::new(possible, crews, |cpu| cpu < CpuSet::MAX_CPU && ours.is_set(cpu)))
    }

    fn new(possible: usize, crews: bool, ours: impl Fn(usize) -> bool) -> Self {
        let queues = 0..possible.min(usize::from(u16::MAX));
        let (mine, strays): (Vec<_>, Vec<_>) = queues.partition(|cpu| ours(*cpu));
        let bound = memory::bound(possible);
        let Shape { depth, stray_depth, transfer_bytes } = Shape::within(bound, mine.len(), strays.len());
        let (crew, depth) = if crews { (depth, 1) } else { (1, depth) };
        let on = |cpu: usize| WorkerPlan { pin: Some(cpu), queues: vec![cpu as u16], depth, waits: crews };
        let mut workers: Vec<_> = mine.iter().flat_map(|&cpu| std::iter::repeat_n(on(cpu), crew)).collect();
        if !strays.is_empty() {
            let queues = strays.iter().map(|&cpu| cpu as u16).collect();
            workers.push(WorkerPlan { pin: None, queues, depth: stray_depth, waits: false });
        }
        Self { workers, transfer_bytes }
    }
}

/// What requests get, such that all memory for them stays within a bound: places with their headers, and the buffer of the thread that
/// drains `/dev/fuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    /// Of our own queues.
    depth: usize,
    /// Of the others.
    stray_depth: usize,
    transfer_bytes: usize,
}

impl Shape {
    /// Depth comes first: an operation that waits (a sync) keeps its place, and those behind it need others. What a transfer
    /// loses by being smaller is little: a trip costs a tenth of copying 256 KiB.
    fn within(bound: usize, mine: usize, strays: usize) -> Self {
        let wanted = mine * limits::FUSE_QUEUE_DEPTH + strays * limits::FUSE_STRAY_QUEUE_DEPTH;
        // The drain's buffer is as large as a place with its header.
        let transfer_bytes = memory::transfer_bytes(wanted + 1, bound, PAGE_BYTES).max(TRANSFER_BYTES_MIN);
        let places =
            bound.saturating_sub(dev_fuse::seat_bytes(transfer_bytes)) / entry::bytes(transfer_bytes);
        let stray_depth = (places / (mine + strays).max(1)).clamp(1, limits::FUSE_STRAY_QUEUE_DEPTH);
        let left = places.saturating_sub(strays * stray_depth);
        Self { depth: (left / mine.max(1)).clamp(1, limits::FUSE_QUEUE_DEPTH), stray_depth, transfer_bytes }
    }
}

/// How many CPUs a list such as `0-3,8` names.
fn count(list: &str) -> Option<usize> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            Some(last.checked_sub(first)? + 1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-1"), Some(2));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        for bad in ["", "x", "3-1", "0-"] {
            assert_eq!(count(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn every_possible_cpu_has_a_queue_and_only_ours_are_pinned() {
        let plan = Plan::new(4, false, |cpu| cpu == 1);
        let depth = limits::FUSE_QUEUE_DEPTH;
        let pinned = WorkerPlan { pin: Some(1), queues: vec![1], depth, waits: false };
        let shallow = limits::FUSE_STRAY_QUEUE_DEPTH;
        let strays = WorkerPlan { pin: None, queues: vec![0, 2, 3], depth: shallow, waits: false };
        assert_eq!(plan.workers, [pinned.clone(), strays.clone()]);

        let crews = Plan::new(4, true, |cpu| cpu == 1);
        let (last, crew) = crews.workers.split_last().unwrap();
        assert_eq!(*last, strays, "it leaves what waits to others");
        assert_eq!(crew, vec![WorkerPlan { depth: 1, waits: true, ..pinned }; depth]);
        assert_eq!(crews.transfer_bytes, plan.transfer_bytes);
    }

    /// All that the plan has its mount allocate for requests.
    fn bytes(plan: &Plan) -> usize {
        let places: usize = plan.workers.iter().map(|worker| worker.depth * worker.queues.len()).sum();
        places * entry::bytes(plan.transfer_bytes) + dev_fuse::seat_bytes(plan.transfer_bytes)
    }

    #[test]
    fn all_memory_for_requests_stays_within_its_bound_on_any_machine() {
        for possible in 1..=1024 {
            for ours in [1, 2, possible / 2, possible].map(|ours| ours.clamp(1, possible)) {
                for crews in [false, true] {
                    let plan = Plan::new(possible, crews, |cpu| cpu < ours);
                    assert!(bytes(&plan) <= memory::bound(possible), "{ours} of {possible}, crews: {crews}");
                    assert!(plan.transfer_bytes.is_power_of_two());
                    let crew = plan.workers.iter().filter(|worker| worker.pin == Some(0)).count();
                    assert!(!crews || crew >= 7);
                    assert!(plan.workers.iter().all(|worker| worker.waits || worker.depth >= 7));
                }
            }
        }
    }

    #[test]
    fn small_machines_have_all_the_places() {
        for (possible, transfer_bytes) in [(1, 512 << 10), (2, 256 << 10), (4, 128 << 10)] {
            let plan = Plan::new(possible, false, |_| true);
            let depths: Vec<_> = plan.workers.iter().map(|worker| worker.depth).collect();
            assert_eq!((plan.transfer_bytes, depths), (transfer_bytes, vec![32; possible]));
        }
        let large = Plan::new(64, false, |_| true);
        assert_eq!((large.transfer_bytes, large.workers[0].depth), (128 << 10, 9));
    }
}
