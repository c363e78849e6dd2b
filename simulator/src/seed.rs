//! The history of a seed.

use std::cell::Cell;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::play::Play;
use crate::step::History;
use crate::strategy;
use crate::tally::Tally;

/// The most steps of the history of a seed, by default.
pub const MAX_STEPS: usize = 400;

/// Runs the history of a seed. If it fails, shrinks it as `config` says. The tally is that of the first, unshrunk
/// history.
pub fn run_once(seed: u64, steps: usize, config: Config) -> (Result<(), TestError<History>>, Tally) {
    let mut runner = TestRunner::new_with_rng(config, rng(seed));
    let first = Cell::new(None);
    let outcome = runner.run(&strategy::histories(steps), |history| {
        let mut play = Play::new(&history, false);
        let verdict = play.run();
        if first.get().is_none() {
            first.set(Some(play.tally));
        }
        verdict.map_err(TestCaseError::fail)
    });
    (outcome, Tally { histories: 1, ..first.get().unwrap_or_default() })
}

fn rng(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Returns the failure of the history of a seed, or `None` if the history passes. Does not shrink the history.
pub fn failure_of(seed: u64) -> Option<String> {
    match run_once(seed, MAX_STEPS, Config { max_shrink_iters: 0, ..config() }).0 {
        Ok(()) => None,
        Err(TestError::Fail(why, _) | TestError::Abort(why)) => Some(why.to_string()),
    }
}

/// Returns the failure of the history that these bytes make, or `None` if the history passes. Does not shrink the
/// history.
pub fn failure_of_input(bytes: &[u8]) -> Option<String> {
    Play::new(&strategy::history_from(bytes), false).run().err()
}

/// Returns the settings for shrinking a failing history.
pub fn config() -> Config {
    let max_shrink_iters = 1_000_000;
    Config { cases: 1, failure_persistence: None, max_shrink_time: 60_000, max_shrink_iters, ..Config::default() }
}

#[cfg(test)]
mod tests {
    use proptest::strategy::{Strategy, ValueTree};

    use super::*;

    /// Returns every event of the history of a seed.
    fn notes_of(seed: u64) -> Vec<String> {
        let mut runner = TestRunner::new_with_rng(config(), rng(seed));
        let history = strategy::histories(MAX_STEPS).new_tree(&mut runner).expect("a history").current();
        let mut play = Play::new(&history, false);
        play.record();
        assert_eq!(play.run(), Ok(()));
        play.recorded()
    }

    /// A small sample of what `make simulate` runs.
    #[test]
    fn first_200_seeds_pass() {
        for seed in 1..=200 {
            assert!(run_once(seed, MAX_STEPS, config()).0.is_ok(), "seed {seed}");
        }
    }

    #[test]
    fn seed_repeats_the_same_events() {
        // In the history of the last seed, one name waits in several forms.
        for seed in (0..20).chain([3979]) {
            let notes = notes_of(seed);
            assert!(!notes.is_empty());
            assert!(notes == notes_of(seed), "seed {seed}");
            assert!(notes != notes_of(seed + 1), "seed {seed}");
        }
    }
}
