//! Figures from figures.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The middle one, or the mean of the two in the middle. There must be one.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => panic!("no median of nothing"),
        Some(upper) if sorted.len() % 2 == 1 => *upper,
        Some(upper) => (sorted[middle - 1] + upper) / 2.0,
    }
}

pub fn median_if_any(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| median(values.iter().copied()))
}

/// The median of what was measured side by side, which a disturbance of the machine hits alike.
pub fn median_ratio(these: &[f64], those: &[f64]) -> f64 {
    assert_eq!(these.len(), those.len(), "ratios are made of pairs");
    median(these.iter().zip(those).map(|(this, that)| this / that))
}

/// Jain's index of fairness: 1 when all have the same, 1/n when one has everything.
pub fn jain(shares: &[u64]) -> f64 {
    let shares: Vec<f64> = shares.iter().map(|&share| share as f64).collect();
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Spans in nanoseconds, to three digits.
pub fn spans() -> Histogram<u64> {
    Histogram::new(3).expect("a histogram of three digits")
}

pub fn record(spans: &mut Histogram<u64>, span: Duration) {
    let span = u64::try_from(span.as_nanos()).expect("a span of less than centuries");
    spans.record(span).expect("a histogram that grows");
}

/// A quantile of [`spans`] in microseconds; None when there is nothing.
pub fn quantile_us(spans: &Histogram<u64>, quantile: f64) -> Option<f64> {
    (!spans.is_empty()).then(|| spans.value_at_quantile(quantile) as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
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
        // A strict queue that was cut off in mid-round, at the least number of rounds that is measured.
        let cut: Vec<u64> = (0..100).map(|client| 20 + client % 2).collect();
        assert!(jain(&cut) > 0.999);
    }

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut some = spans();
        assert_eq!(quantile_us(&some, 0.5), None);
        record(&mut some, Duration::from_secs(1));
        let median = quantile_us(&some, 0.5).expect("a median");
        assert!((median / 1e6 - 1.0).abs() < 0.001, "{median}");
    }
}
