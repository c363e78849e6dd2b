//! Numbers from numbers.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The middle one, or the mean of the two in the middle. There must be one.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// The median of the ratios of pairs. A disturbance of the machine affects both numbers of a pair.
pub fn median_ratio(these: &[f64], those: &[f64]) -> f64 {
    assert_eq!(these.len(), those.len(), "ratios are made of pairs");
    median(these.iter().zip(those).map(|(this, that)| this / that))
}

/// Jain's index of fairness: 1 if all have the same, 1/n if one has everything.
pub fn jain(shares: &[u64]) -> f64 {
    let shares: Vec<f64> = shares.iter().map(|&share| share as f64).collect();
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Durations, with three digits.
pub struct Durations(Histogram<u64>);

impl Durations {
    pub fn new() -> Self {
        Self(Histogram::new(3).expect("a histogram of three digits"))
    }

    pub fn record(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).expect("a duration of less than centuries");
        self.0.record(ns).expect("a histogram that grows");
    }

    /// A quantile in milliseconds; None without durations.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn ratios_are_made_pair_by_pair() {
        // The machine was half as fast in the second round.
        assert_eq!(median_ratio(&[30.0, 15.0, 36.0], &[20.0, 10.0, 20.0]), 1.5);
    }

    #[test]
    fn equal_shares_are_fair() {
        assert_eq!(jain(&[7, 7, 7, 7]), 1.0);
        assert_eq!(jain(&[28, 0, 0, 0]), 0.25);
        // Strict turns that end in the middle of a round.
        let cut: Vec<u64> = (0..100).map(|client| 20 + client % 2).collect();
        assert!(jain(&cut) > 0.999);
    }

    #[test]
    fn quantiles_are_in_milliseconds() {
        let mut some = Durations::new();
        assert_eq!(some.quantile_ms(0.5), None);
        some.record(Duration::from_secs(1));
        let median = some.quantile_ms(0.5).expect("a median");
        assert!((median / 1000.0 - 1.0).abs() < 0.001, "{median}");
    }
}
