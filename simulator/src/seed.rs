//! The history that a seed decides.

use std::cell::Cell;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::play::Play;
use crate::step::History;
use crate::strategy;
use crate::tally::Tally;

/// The most steps of the history of a seed, if nothing else is said.
pub const MAX_STEPS: usize = 400;

/// Runs the history of a seed, and shrinks it as `config` says if it fails. The tally is that of the whole history.
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

/// Returns what the history of a seed fails with, or `None` if it holds. It is not shrunk.
pub fn failure_of(seed: u64) -> Option<String> {
    match run_once(seed, MAX_STEPS, Config { max_shrink_iters: 0, ..config() }).0 {
        Ok(()) => None,
        Err(TestError::Fail(why, _) | TestError::Abort(why)) => Some(why.to_string()),
    }
}

/// Returns what the history that these bytes make fails with, or `None` if it holds. It is not shrunk.
pub fn failure_of_input(bytes: &[u8]) -> Option<String> {
    Play::new(&strategy::history_from(bytes), false).run().err()
}

/// How a failing history is shrunk.
pub fn config() -> Config {
    let max_shrink_iters = 1_000_000;
    Config { cases: 1, failure_persistence: None, max_shrink_time: 60_000, max_shrink_iters, ..Config::default() }
}

#[cfg(test)]
mod tests {
    use proptest::strategy::{Strategy, ValueTree};

    use super::*;

    /// Every note of the history of a seed.
    fn notes_of(seed: u64) -> Vec<String> {
        let mut runner = TestRunner::new_with_rng(config(), rng(seed));
        let history = strategy::histories(MAX_STEPS).new_tree(&mut runner).expect("a history").current();
        let mut play = Play::new(&history, false);
        play.record();
        assert_eq!(play.run(), Ok(()));
        play.recorded()
    }

    /// A taste of what `make simulate` does.
    #[test]
    fn the_contract_holds_in_the_first_histories() {
        for seed in 1..=200 {
            assert!(run_once(seed, MAX_STEPS, config()).0.is_ok(), "seed {seed}");
        }
    }

    #[test]
    fn a_seed_decides_everything() {
        // In the last one, one name waits in several forms.
        for seed in (0..20).chain([3979]) {
            let notes = notes_of(seed);
            assert!(!notes.is_empty());
            assert!(notes == notes_of(seed), "seed {seed}");
            assert!(notes != notes_of(seed + 1), "seed {seed}");
        }
    }
}
