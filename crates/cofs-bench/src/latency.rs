//! Times of single operations, as a histogram of three significant digits.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest time told apart: an hour.
const NANOS_MAX: u64 = 3600 * 1_000_000_000;

/// Times of operations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// The form in which a worker sends them: value and count.
#[derive(Serialize, Deserialize, Debug, Default)]
pub struct Packed(Vec<(u64, u64)>);

impl Packed {
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }
}

impl Default for Latencies {
    fn default() -> Self {
        // The bounds are constants that the histogram takes.
        Self(Histogram::new_with_bounds(1, NANOS_MAX, 3).unwrap_or_else(|_| unreachable!("valid bounds")))
    }
}

impl Latencies {
    /// Nothing is recorded, and all of the memory is there: counting into memory that is not there yet takes longer than a
    /// short operation.
    pub fn reset(&mut self) {
        // Writes zeros.
        self.0.reset();
    }

    pub fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos.max(1));
    }

    /// The same time of so many operations.
    pub fn record_many(&mut self, nanos: u64, count: u64) {
        self.0.saturating_record_n(nanos.max(1), count);
    }

    pub fn pack(&self) -> Packed {
        Packed(self.0.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect())
    }

    pub fn add(&mut self, packed: &Packed) {
        packed.0.iter().for_each(|(value, count)| self.0.saturating_record_n(*value, *count));
    }

    pub fn merge(&mut self, other: &Self) {
        self.add(&other.pack());
    }

    /// Nanoseconds that this part (0 to 1) of the operations did not exceed.
    pub fn quantile(&self, part: f64) -> u64 {
        self.0.value_at_quantile(part)
    }

    /// Nanoseconds; 0 where nothing was recorded.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    pub fn max(&self) -> u64 {
        self.0.max()
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_the_quantiles() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|n| latencies.record(n * 1000));
        let mut again = Latencies::default();
        again.add(&latencies.pack());
        assert_eq!(again.count(), 1000);
        let error = again.quantile(0.5).abs_diff(500_000);
        assert!(error < 2000, "{error}");
        assert_eq!(again.quantile(0.99), latencies.quantile(0.99));
    }
}
