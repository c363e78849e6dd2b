//! A straight line through points.

/// How fast something rises, and how sure that is.
pub struct Trend {
    /// By how much a unit of time.
    pub slope: f64,
    /// The standard error of that.
    pub error: f64,
}

impl Trend {
    /// The line through these points of time and value that has the least squares of distances.
    pub fn of(points: &[(f64, f64)]) -> Self {
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
    fn a_line_is_found_exactly() {
        let points: Vec<_> = (0..10).map(|n| (f64::from(n), 5.0 + 3.0 * f64::from(n))).collect();
        let Trend { slope, error } = Trend::of(&points);
        assert!((slope - 3.0).abs() < 1e-9 && error < 1e-9, "{slope}, {error}");
    }

    #[test]
    fn a_slow_rise_shows_behind_noise_that_is_larger() {
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
