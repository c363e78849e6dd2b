//! The soak: under full load the memory of the server stays the same.

use std::time::{Duration, Instant};

use crate::run::Run;

/// The loss of the smallest piece of memory in one request of a thousand, in bytes for each request. A defect that
/// loses memory in each request of some kind loses more.
const MAX_PER_REQUEST: f64 = 16.0 / 1000.0;
const EVERY: Duration = Duration::from_secs(1);

/// The memory of the server at one time.
struct Sample {
    minutes: f64,
    requests: f64,
    /// In bytes, as the allocator counts them and as the system does.
    used: f64,
    resident: f64,
}

/// Samples the memory once a second, and reports a rise.
pub fn watch_memory(run: &Run, _: fastrand::Rng) {
    let Some(mut link) = run.connect(0, false) else { return };
    let (begun, mut samples) = (Instant::now(), Vec::new());
    while run.goes_on() {
        run.rest(EVERY);
        let mut bytes = |name| link.number("memory", name).map(|bytes| bytes as f64);
        let (Some(used), Some(resident)) = (bytes("used_memory"), bytes("used_memory_rss")) else {
            return run.fails("the server lives", "it does not reply to INFO");
        };
        let requests = run.counters.of("requests") as f64;
        samples.push(Sample { minutes: begun.elapsed().as_secs_f64() / 60.0, requests, used, resident });
    }
    // In the first sixth tables and pools grow.
    let steady = &samples[samples.len() / 6..];
    let [first, .., last] = steady else { return };
    let most = MAX_PER_REQUEST * (last.requests - first.requests) / (last.minutes - first.minutes);
    check_flat(run, "used_memory", steady, most, |sample| sample.used);
    check_flat(run, "resident memory", steady, most, |sample| sample.resident);
}

/// Prints how a figure has developed, and reports a certain rise by more than `most` bytes a minute.
fn check_flat(run: &Run, what: &str, steady: &[Sample], most: f64, figure: fn(&Sample) -> f64) {
    let points: Vec<(f64, f64)> = steady.iter().map(|sample| (sample.minutes, figure(sample))).collect();
    let Trend { slope, error } = Trend::of(&points);
    let [first, last] = [points[0], points[points.len() - 1]].map(|(_, bytes)| bytes / 1000.0);
    let text = format!(
        "{what}: {first:.0} KB after the first sixth, {last:.0} KB at the end; {slope:+.0} bytes a minute, give or take {error:.0}, \
         of {most:.0}"
    );
    println!("{text}");
    if slope - 3.0 * error > most {
        run.fails("memory stays the same under load", text);
    }
}

/// A straight line through points: its slope, and the standard error of that.
struct Trend {
    slope: f64,
    error: f64,
}

impl Trend {
    /// The line through these points of time and value with the least squares of distances.
    fn of(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (time, value) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - time).powi(2)).sum();
        let slope = points.iter().map(|point| (point.0 - time) * (point.1 - value)).sum::<f64>() / spread;
        let rest: f64 = points.iter().map(|point| (point.1 - value - slope * (point.0 - time)).powi(2)).sum();
        Self { slope, error: (rest / (count - 2.0) / spread).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_line_is_found() {
        let points: Vec<_> = (0..10).map(|n| (f64::from(n), 5.0 + 3.0 * f64::from(n))).collect();
        let Trend { slope, error } = Trend::of(&points);
        assert!((slope - 3.0).abs() < 1e-9 && error < 1e-9, "{slope}, {error}");
    }

    #[test]
    fn slow_rise_shows_in_larger_noise() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut with_slope = |slope: f64| {
            let points = (0..1500).map(|n| f64::from(n) / 60.0);
            Trend::of(&points.map(|at| (at, slope * at + 200_000.0 * random.f64())).collect::<Vec<_>>())
        };
        let (rising, level) = (with_slope(3000.0), with_slope(0.0));
        assert!(rising.slope - 3.0 * rising.error > 0.0, "{} {}", rising.slope, rising.error);
        assert!(level.slope - 3.0 * level.error <= 0.0, "{} {}", level.slope, level.error);
    }
}
