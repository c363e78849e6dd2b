//! The time to acquire and the fairness among many clients and many locks, of which a few are wanted most.

use std::iter;
use std::time::Duration;

use support::Setup;

use crate::contest::{self, Kind, Peer, Round, Terms, acquire_times, gave_up, grants, overlaps};
use crate::protocols::scripts;
use crate::report::{Bar, Effort, Row, Section, headings};
use crate::statistics::{Durations, jain};

const LOCKS: usize = 1_000;
/// The exponent of Zipf's law: lock n is chosen with a probability in proportion to 1 / n^s.
const SKEW: f64 = 0.99;
/// The acquisitions after which the sequence of locks begins again.
const CHOICES: usize = 100_003;
const SEED: u64 = 7;
const MIN_FAIRNESS: f64 = 0.95;

pub fn measure(effort: Effort) -> Section {
    let server = Setup::new().start();
    let mut client = server.client();
    scripts::load(&mut client);
    let terms = Terms {
        processes: 4,
        clients: effort.choose(16, 4),
        permits: 1,
        hold_ms: 1,
        length: effort.choose(Duration::from_secs(10), Duration::from_millis(500)),
        locks: choices(&mut fastrand::Rng::with_seed(SEED)),
    };
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for peer in contest::skewed(&mut client) {
        let round = contest::run(&server, &peer, &terms);
        let (row, fairness) = numbers(&peer, &round, &terms);
        if peer.kind != Kind::Other {
            let overlaps = overlaps(&round.attempts, terms.permits) as f64;
            bars.push(Bar::at_most(format!("{}, two holders of a lock", peer.label), overlaps, 0.0));
            bars.push(Bar::at_least(format!("{}, Jain's index", peer.label), fairness, MIN_FAIRNESS));
        }
        rows.push(row);
    }
    Section {
        title: "Contention for locks of different popularity",
        method: format!(
            "{} clients in {} processes choose one of {LOCKS} locks by Zipf's law with s = {SKEW}, acquire it, hold it for {} ms, release \
             it and choose again, for {:?}. The times are from the call to acquire to its return, with the time of attempts that the \
             package repeats. Jain's index is about the acquisitions of the clients. The clients in Rust have timers with a resolution of \
             1 ms. redis-lock-client and the clients in Python are threads.",
            terms.all_clients(),
            terms.processes,
            terms.hold_ms,
            terms.length
        ),
        headings: headings(&[
            "client",
            "acquisitions/s",
            "p50, ms",
            "p99, ms",
            "p999, ms",
            "longest, ms",
            "Jain's index",
            "gave up",
        ]),
        rows,
        bars,
    }
}

/// The sequence of locks.
fn choices(random: &mut fastrand::Rng) -> Vec<usize> {
    let weight = |lock: usize| (lock as f64 + 1.0).powf(-SKEW);
    let sums: Vec<f64> = (0..LOCKS)
        .scan(0.0, |sum, lock| {
            *sum += weight(lock);
            Some(*sum)
        })
        .collect();
    let total = sums[LOCKS - 1];
    iter::repeat_with(|| {
        let point = random.f64() * total;
        sums.partition_point(|&sum| sum <= point)
    })
    .take(CHOICES)
    .collect()
}

/// The row of a client, and its fairness.
fn numbers(peer: &Peer, round: &Round, terms: &Terms) -> (Row, f64) {
    let mut times = Durations::new();
    acquire_times(&round.attempts, &round.window, &mut times);
    let grants = grants(&round.attempts, terms.all_clients(), &round.window);
    let fairness = jain(&grants);
    let per_second = grants.iter().sum::<u64>() as f64 / terms.length.as_secs_f64();
    let quantiles = [0.5, 0.99, 0.999, 1.0].map(|quantile| times.quantile_ms(quantile));
    let last = [Some(fairness), Some(gave_up(&round.attempts) as f64)];
    let cells = iter::once(Some(per_second)).chain(quantiles).chain(last);
    (Row::new(format!("{} {}", peer.label, round.version).trim_end(), cells), fairness)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_locks_are_chosen_most() {
        let choices = choices(&mut fastrand::Rng::with_seed(SEED));
        let share = |lock: usize| choices.iter().filter(|&&choice| choice == lock).count() as f64 / CHOICES as f64;
        // The sum of all weights is 7.73.
        assert!((share(0) - 1.0 / 7.73).abs() < 0.005, "{}", share(0));
        assert!((share(9) - 0.1023 / 7.73).abs() < 0.002, "{}", share(9));
        assert!(choices.iter().all(|&choice| choice < LOCKS));
    }
}
