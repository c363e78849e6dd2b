//! Instructions per cycle, as often as they were measured.

/// Of one workload, under several random seeds of the server's.
#[derive(Clone, Debug)]
pub struct Count {
    by_seed: Vec<f64>,
    /// How far the first seed's figure was off when it was measured once more, as a share of it.
    again: Option<f64>,
}

impl Count {
    /// Of measurements under each seed, and after those perhaps of another under the first.
    pub(super) fn of(measured: &[f64], seeds: usize) -> Self {
        let (by_seed, again) = measured.split_at(seeds);
        let off = |again: &f64| by_seed.first().map(|first| (again / first - 1.0).abs());
        Self { by_seed: by_seed.to_vec(), again: again.first().and_then(off) }
    }

    pub fn mean(&self) -> f64 {
        self.by_seed.iter().sum::<f64>() / self.by_seed.len() as f64
    }

    /// From the seed with the lowest to that with the highest figure, as a share of the mean.
    pub fn spread(&self) -> f64 {
        let lowest = self.by_seed.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = self.by_seed.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (highest - lowest) / self.mean()
    }

    pub fn again(&self) -> Option<f64> {
        self.again
    }

    /// A figure made of two counts, seed by seed.
    pub fn with(&self, other: &Self, figure: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.by_seed.iter().zip(&other.by_seed);
        Self { by_seed: pairs.map(|(one, other)| figure(*one, *other)).collect(), again: None }
    }

    pub fn over(&self, other: &Self) -> Self {
        self.with(other, |one, other| one / other)
    }
}
