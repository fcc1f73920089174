//! CPUs that wait awake: while requests come, idle CPUs poll instead of halting.
//!
//! Clients that share a directory wait for each other in the kernel, and those of `/dev/fuse` for its reader: each time somebody
//! is woken on a CPU that has just gone idle. In a virtual machine an idle CPU halts by leaving to the host, and coming back takes longer than
//! the request. The kernel lets a process ask that none of them does (PM QoS: `/dev/cpu_dma_latency`, 0 microseconds), as long as that
//! has the device open. It is asked here, for as long as there is traffic that gains by it; what it costs is the idle CPUs' time.
//!
//! Invariants: nothing is asked without traffic, and what was asked ends with the process, however that ends; a request costs no
//! system call and no shared cache line for it, but for each 64th.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::alarm::Alarm;

const LATENCY: &str = "/dev/cpu_dma_latency";
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The driver of KVM's guests, whose idle CPUs leave to the host.
const OF_GUESTS: &str = "haltpoll";
/// What is asked: microseconds that waking a CPU may take. None, and so many that nothing is asked
/// (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const AWAKE: i32 = 0;
const AS_EVER: i32 = 2_000_000_000;

/// Between two looks whether there is still traffic.
const LOOK: Duration = Duration::from_millis(20);
/// A gauge looks at the clock once in so many requests ...
const REQUESTS: u64 = 64;
/// ... and they are traffic where they took no longer: 4000 a second.
const TRAFFIC: Duration = Duration::from_millis(16);
/// So many places have traffic where it gains by CPUs that are awake.
const PLACES: u32 = 2;

/// What idle CPUs do while requests come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IdleCpus {
    /// They poll in a virtual machine whose kernel knows that halting is dear there (cpuidle's driver `haltpoll`), where this process
    /// may have it so.
    #[default]
    Auto,
    /// They poll, where this process may have it so, on a machine of any kind.
    Poll,
    /// Whatever they did before.
    Halt,
}

/// Keeps the CPUs awake while gauges tell of traffic.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    alarm: Alarm,
    /// A bit for each place that had traffic since the last look.
    busy: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Vigil {
    /// Errors: why the CPUs do as they did, in words for the report.
    pub fn start(idle: IdleCpus) -> Result<Arc<Self>, String> {
        let driver = std::fs::read_to_string(DRIVER).unwrap_or_default();
        wanted(idle, driver.trim())?;
        let device = OpenOptions::new().write(true).open(LATENCY);
        let device = device.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => format!("{LATENCY}: {error} (it needs root)"),
            _ => format!("{LATENCY}: {error}"),
        })?;
        let vigil = Arc::<Self>::default();
        let own = vigil.clone();
        let thread =
            std::thread::Builder::new().name("cofs-fuse-awake".into()).spawn(move || own.keep(device));
        let thread = thread.map_err(|error| format!("no thread to keep the CPUs awake: {error}"))?;
        *vigil.thread.lock() = Some(thread);
        Ok(vigil)
    }

    /// The thread's life.
    fn keep(&self, device: File) {
        self.alarm.is_mine();
        while !self.alarm.is_over() {
            self.alarm.sleep();
            let kept = ask(&device, AWAKE).and_then(|()| {
                while !self.alarm.is_over() && is_enough(self.busy.swap(0, Ordering::Relaxed)) {
                    std::thread::sleep(LOOK);
                }
                ask(&device, AS_EVER)
            });
            if let Err(error) = kept {
                // What was asked ends with the device.
                return tracing::error!(%error, "idle CPUs are no longer kept awake: {LATENCY}");
            }
        }
    }

    /// To be called when no gauge is used any more.
    pub fn end(&self) {
        self.alarm.end();
        if self.thread.lock().take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that keeps CPUs awake has panicked");
        }
    }
}

fn is_enough(busy: u64) -> bool {
    busy.count_ones() >= PLACES
}

/// Whether there is anything to be asked for on a machine with this driver of idle CPUs. Errors: why not.
fn wanted(idle: IdleCpus, driver: &str) -> Result<(), String> {
    match (idle, driver) {
        (IdleCpus::Halt, _) => Err("switched off by option".into()),
        (_, "" | "none") => Err("the kernel has no driver for idle CPUs that lets them poll".into()),
        (IdleCpus::Auto, driver) if driver != OF_GUESTS => {
            Err(format!("idle CPUs are {driver}'s, not those of a virtual machine ({OF_GUESTS})"))
        }
        _ => Ok(()),
    }
}

fn ask(mut device: &File, microseconds: i32) -> io::Result<()> {
    device.write_all(&microseconds.to_ne_bytes())
}

/// Counts the requests of one reader or worker.
#[derive(Debug)]
pub(crate) struct Gauge {
    vigil: Option<Arc<Vigil>>,
    /// The bits that this one sets.
    places: u64,
    requests: u64,
    since: Instant,
}

impl Gauge {
    /// Of a reader of `/dev/fuse`: whoever asks there wakes one, wherever that is, so that one is enough.
    pub fn of_reader(vigil: Option<Arc<Vigil>>) -> Self {
        Self { vigil, places: 0b11, requests: 0, since: Instant::now() }
    }

    /// Of a worker that serves a CPU: where one alone is busy, nobody is woken on another.
    pub fn of_cpu(vigil: Option<Arc<Vigil>>, cpu: usize) -> Self {
        Self { vigil, places: 1 << (cpu % 64), requests: 0, since: Instant::now() }
    }

    #[inline(always)]
    pub fn count(&mut self) {
        self.requests = self.requests.wrapping_add(1);
        if self.requests.is_multiple_of(REQUESTS) {
            self.look();
        }
    }

    #[cold]
    fn look(&mut self) {
        let Some(vigil) = &self.vigil else { return };
        let now = Instant::now();
        if now - std::mem::replace(&mut self.since, now) <= TRAFFIC {
            let busy = vigil.busy.fetch_or(self.places, Ordering::Relaxed) | self.places;
            if is_enough(busy) {
                vigil.alarm.ring();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_virtual_machines_poll_unasked_and_nobody_where_the_kernel_cannot() {
        assert_eq!(wanted(IdleCpus::Auto, "haltpoll"), Ok(()));
        assert_eq!(wanted(IdleCpus::Poll, "haltpoll"), Ok(()));
        assert_eq!(wanted(IdleCpus::Poll, "intel_idle"), Ok(()));
        assert!(wanted(IdleCpus::Auto, "intel_idle").unwrap_err().contains("intel_idle's"));
        for idle in [IdleCpus::Auto, IdleCpus::Poll] {
            assert!(wanted(idle, "none").unwrap_err().contains("no driver"));
            assert!(wanted(idle, "").unwrap_err().contains("no driver"));
        }
        assert!(wanted(IdleCpus::Halt, "haltpoll").unwrap_err().contains("option"));
    }

    /// Whether such traffic of one reader or of the workers of so many CPUs keeps CPUs awake.
    fn keeps_awake(mut gauges: Vec<Gauge>, vigil: &Vigil, requests: u64, pause: Duration) -> bool {
        for gauge in &mut gauges {
            gauge.since = Instant::now() - pause;
            (0..requests).for_each(|_| gauge.count());
        }
        is_enough(vigil.busy.load(Ordering::Relaxed))
    }

    #[test]
    fn one_reader_is_enough_and_one_cpu_is_not() {
        let soon = Duration::ZERO;
        let cpus = |vigil: &Arc<Vigil>, cpus: &[usize]| {
            cpus.iter().map(|&cpu| Gauge::of_cpu(Some(vigil.clone()), cpu)).collect()
        };
        let vigil = Arc::<Vigil>::default();
        assert!(!keeps_awake(cpus(&vigil, &[1]), &vigil, 10 * REQUESTS, soon));
        assert!(!keeps_awake(cpus(&vigil, &[0]), &vigil, REQUESTS - 1, soon), "another CPU, with too few");
        assert!(!keeps_awake(cpus(&vigil, &[0]), &vigil, REQUESTS, 2 * TRAFFIC), "or too slowly");
        assert!(keeps_awake(cpus(&vigil, &[0]), &vigil, REQUESTS, soon));
        let vigil = Arc::<Vigil>::default();
        assert!(keeps_awake(cpus(&vigil, &[62, 63]), &vigil, REQUESTS, soon));
        let vigil = Arc::<Vigil>::default();
        assert!(keeps_awake(vec![Gauge::of_reader(Some(vigil.clone()))], &vigil, REQUESTS, soon));
    }

    #[test]
    fn without_a_vigil_requests_are_only_counted() {
        let mut gauge = Gauge::of_reader(None);
        (0..3 * REQUESTS).for_each(|_| gauge.count());
        assert_eq!(gauge.requests, 3 * REQUESTS);
    }
}
