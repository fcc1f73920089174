//! The filler: a thread that creates objects ahead of need.
//!
//! It sleeps until a ready list falls under its low watermark, creates objects in small bursts up to twice
//! that, makes their names durable, and sleeps again. The watermark follows the load: what is taken in
//! [`HORIZON_SECS`], doubled at once when a list ran empty, falling slowly when the load does. Errors make
//! it wait, longer each time. After a crash of the process it first takes up the objects that were left.

use std::{
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use cofs_types::{
    FsResult, failpoint,
    limits::{
        FILLER_BACKOFF_MAX, FILLER_BURST_MAX, OBJECT_NAME_LAG, OBJECT_RESERVATION, OBJECTS_READY_MAX,
        OBJECTS_READY_MIN,
    },
};
use parking_lot::{Condvar, Mutex};

use crate::{
    Placement,
    pool::{Pool, recovery},
};

/// The low watermark is what the load takes in this time.
pub(crate) const THREAD: &str = "cofs-filler";
const HORIZON_SECS: f64 = 0.05;
/// How fast the estimate of the load follows it up and down (time constants).
const RISE_SECS: f64 = 0.2;
const FALL_SECS: f64 = 10.0;
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// How long the filler sleeps while something remains to be done slowly.
const TICK: Duration = Duration::from_secs(1);
/// Below this rate (objects per second) the load is over.
const IDLE_RATE: f64 = 0.1;

/// How the filler is woken and stopped.
#[derive(Default)]
pub struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignalState {
    wanted: bool,
    stop: bool,
}

impl Signal {
    pub fn wake(&self) {
        let mut state = self.state.lock();
        if !state.wanted {
            state.wanted = true;
            self.changed.notify_one();
        }
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    /// Waits to be woken, or for `pause`; `false` when it is over.
    fn wait(&self, pause: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        let until = pause.map(|pause| Instant::now() + pause);
        while !state.wanted && !state.stop {
            match until {
                Some(until) => {
                    if self.changed.wait_until(&mut state, until).timed_out() {
                        break;
                    }
                }
                None => self.changed.wait(&mut state),
            }
        }
        state.wanted = false;
        !state.stop
    }
}

/// Starts the thread. It ends when it is stopped or the driver is gone.
pub fn spawn(driver: &Arc<Placement>, signal: Arc<Signal>) -> std::io::Result<thread::JoinHandle<()>> {
    let driver = Arc::downgrade(driver);
    thread::Builder::new().name(THREAD.to_owned()).spawn(move || run(&driver, &signal))
}

fn run(driver: &Weak<Placement>, signal: &Signal) {
    let mut loads: Vec<Load> = match driver.upgrade() {
        Some(driver) => driver.pools().iter().map(|_| Load::new()).collect(),
        None => return,
    };
    let mut pause = Some(Duration::ZERO);
    while signal.wait(pause) {
        let Some(driver) = driver.upgrade() else { return };
        pause = None;
        for (pool, load) in driver.pools().iter().zip(&mut loads) {
            let wanted = serve(&driver, pool, load);
            pause = [pause, wanted].into_iter().flatten().min();
        }
    }
}

/// Does what one pool needs; how long it may then be left alone (`None`: until woken).
fn serve(driver: &Placement, pool: &Pool, load: &mut Load) -> Option<Duration> {
    if let Some(left) = load.backing_off() {
        return Some(left);
    }
    match maintain(driver, pool, load) {
        Ok(pause) => {
            load.backoff = None;
            pause
        }
        Err(error) => {
            let pause = load.back_off();
            tracing::debug!(pool = pool.config.id.0, %error, ?pause, "no objects created ahead");
            Some(pause)
        }
    }
}

fn maintain(driver: &Placement, pool: &Pool, load: &mut Load) -> FsResult<Option<Duration>> {
    pool.ensure()?;
    let news = !pool.numbers.is_looked_through();
    recovery::recover(pool)?;
    if news {
        driver.tell_looked_through();
    }
    pool.remove_unwanted()?;
    reserve_ahead(pool)?;
    loop {
        let low = load.observe(pool.ready.counts(), Instant::now());
        pool.ready.set_low(low);
        let missing = (2 * low).saturating_sub(pool.ready.len()).min(FILLER_BURST_MAX);
        if missing == 0 {
            break;
        }
        burst(pool, missing)?;
        reserve_ahead(pool)?;
        if load.synced.elapsed() >= OBJECT_NAME_LAG {
            settle(pool, load)?;
        }
    }
    settle(pool, load)?;
    trim(pool, 4 * load.low());
    if load.swept.elapsed() >= TICK {
        pool.sweep(false);
        load.swept = Instant::now();
    }
    let busy = !load.is_idle() || pool.ready.len() > 4 * load.low() || pool.has_emptied();
    Ok(busy.then_some(TICK))
}

/// Reserves numbers before they are needed, so that nobody waits for the disk when they are.
fn reserve_ahead(pool: &Pool) -> FsResult<()> {
    pool.run("reserve object numbers", || {
        pool.numbers.reserve(&*pool.store, OBJECT_RESERVATION / 2, &|| pool.lowest())
    })
}

/// Creates `count` objects; how many there are then is the ready list's to say.
pub fn burst(pool: &Pool, count: usize) -> FsResult<()> {
    for _ in 0..count {
        let object = pool.run("create an object ahead of need", || pool.create())?;
        pool.ready.push(object);
    }
    failpoint("placement.fill.burst");
    Ok(())
}

/// Makes the names of new objects durable.
fn settle(pool: &Pool, load: &mut Load) -> FsResult<()> {
    for directory in pool.directories.unsettled() {
        pool.once("sync an object directory", || directory.sync(&*pool.store))?;
    }
    load.synced = Instant::now();
    if pool.ready.has_fresh() {
        pool.ready.promote();
    }
    failpoint("placement.fill.settled");
    Ok(())
}

/// Removes some of what is ready beyond `most`: the load is over.
fn trim(pool: &Pool, most: usize) {
    let surplus = pool.ready.len().saturating_sub(most).min(FILLER_BURST_MAX);
    for _ in 0..surplus {
        let Some(object) = pool.ready.pop_newest() else { return };
        if pool.remove(object.sequence).is_err() {
            pool.ready.push(object);
            return;
        }
    }
}

/// The load on one pool, estimated.
struct Load {
    rate: f64,
    /// Set when the list ran empty: the rate it would have taken.
    floor: f64,
    counts: (u64, u64),
    observed: Instant,
    synced: Instant,
    swept: Instant,
    backoff: Option<(Duration, Instant)>,
}

impl Load {
    fn new() -> Self {
        let now = Instant::now();
        Self { rate: 0.0, floor: 0.0, counts: (0, 0), observed: now, synced: now, swept: now, backoff: None }
    }

    /// Takes in what was taken since; the low watermark.
    fn observe(&mut self, (taken, missed): (u64, u64), now: Instant) -> usize {
        let secs = now.saturating_duration_since(self.observed).as_secs_f64();
        // Shorter spans tell little; what was taken in them counts with the next.
        if secs >= 0.001 {
            let current = (taken - self.counts.0) as f64 / secs;
            let constant = if current > self.rate { RISE_SECS } else { FALL_SECS };
            self.rate += (current - self.rate) * (1.0 - (-secs / constant).exp());
            self.floor *= (-secs / FALL_SECS).exp();
            if missed > self.counts.1 {
                self.floor = (2.0 * self.floor).max(2.0 * OBJECTS_READY_MIN as f64 / HORIZON_SECS);
                self.floor = self.floor.min(OBJECTS_READY_MAX as f64 / HORIZON_SECS);
            }
            self.counts = (taken, missed);
            self.observed = now;
        }
        self.low()
    }

    fn low(&self) -> usize {
        let wanted = self.rate.max(self.floor) * HORIZON_SECS;
        (wanted as usize).clamp(OBJECTS_READY_MIN, OBJECTS_READY_MAX / 2)
    }

    fn is_idle(&self) -> bool {
        self.rate.max(self.floor) < IDLE_RATE
    }

    fn backing_off(&self) -> Option<Duration> {
        let (_, until) = self.backoff?;
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    fn back_off(&mut self) -> Duration {
        let pause = self.backoff.map_or(BACKOFF_MIN, |(pause, _)| (2 * pause).min(FILLER_BACKOFF_MAX));
        self.backoff = Some((pause, Instant::now() + pause));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermark_follows_the_load_within_its_bounds() {
        let mut load = Load::new();
        let mut now = load.observed;
        let mut taken = 0;
        let mut go = |load: &mut Load, per_sec: u64, secs: u64| {
            for _ in 0..secs * 10 {
                now += Duration::from_millis(100);
                taken += per_sec / 10;
                load.observe((taken, 0), now);
            }
            load.low()
        };
        assert_eq!(go(&mut load, 0, 1), OBJECTS_READY_MIN);
        assert!((450..=500).contains(&go(&mut load, 10_000, 2)));
        assert_eq!(go(&mut load, 1_000_000, 2), OBJECTS_READY_MAX / 2);
        assert_eq!(go(&mut load, 0, 200), OBJECTS_READY_MIN);
        assert!(load.is_idle());
    }

    #[test]
    fn running_empty_doubles_the_watermark_at_once() {
        let mut load = Load::new();
        let start = load.observed;
        let lows: Vec<usize> =
            (1..8).map(|n| load.observe((n, n), start + Duration::from_millis(2 * n))).collect();
        assert!(lows.is_sorted() && lows[0] >= 31 && lows[6] > 900, "{lows:?}");
    }
}
