//! The figures of one package, from all its rounds.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::section::{Bar, Row};
use crate::statistics::{jain, quantile_us, record, spans};

use super::attempts::{self, Outcome};
use super::peers::{Kind, Peer};
use super::round::{Round, Terms};

pub const HEADINGS: [&str; 10] = [
    "package",
    "acquisitions/s",
    "release to grant, p50 (ms)",
    "release to grant, p99 (ms)",
    "longest wait (ms)",
    "Jain's index",
    "gave up",
    "too many holders at once",
    "commands",
    "round trips",
];

/// One to take the lock, one for LOCK.RELEASE.
const MODULE_NEEDS: f64 = 2.0;
/// The same, and one that the module sends where the machine has held it up: what the latency monitor wants to hear of.
const MODULE_SENDS: f64 = 2.01;
/// The same, and now and then one more: it asks again when it has heard nothing for a while.
const PACKAGE_NEEDS: f64 = 2.1;

pub struct Figures {
    version: String,
    per_second: f64,
    /// Nanoseconds; empty where nobody who waited got the lock.
    release_to_grant: Histogram<u64>,
    longest_wait: u64,
    /// The mean of the rounds, for whom chance favours differs from round to round.
    jain: f64,
    gave_up: usize,
    overlaps: usize,
    commands: f64,
    round_trips: f64,
}

impl Figures {
    pub fn of(rounds: &[Round], terms: Terms) -> Self {
        let mut release_to_grant = spans();
        let waits = rounds.iter().flat_map(|round| attempts::release_to_grant(&round.attempts, &round.window));
        waits.for_each(|wait| record(&mut release_to_grant, Duration::from_nanos(wait)));

        let shares: Vec<Vec<u64>> =
            rounds.iter().map(|round| attempts::grants(&round.attempts, &round.window)).collect();
        let every = || rounds.iter().flat_map(|round| round.attempts.iter().flatten());
        let held = every().filter(|attempt| attempt.held().is_some()).count();
        let length_ns: u64 = rounds.iter().map(|round| round.window.end - round.window.start).sum();
        Self {
            version: rounds.first().map(|round| round.version.clone()).unwrap_or_default(),
            per_second: shares.iter().flatten().sum::<u64>() as f64 * 1e9 / length_ns as f64,
            release_to_grant,
            longest_wait: every().filter_map(|attempt| Some(attempt.held()?.start - attempt.begun)).max().unwrap_or(0),
            jain: shares.iter().map(|shares| jain(shares)).sum::<f64>() / rounds.len() as f64,
            gave_up: every().filter(|attempt| attempt.outcome == Outcome::GaveUp).count(),
            overlaps: rounds.iter().map(|round| attempts::overlaps(&round.attempts, terms.permits)).sum(),
            commands: rounds.iter().map(|round| round.spent.commands).sum::<u64>() as f64 / held as f64,
            round_trips: rounds.iter().map(|round| round.spent.reads).sum::<u64>() as f64 / held as f64,
        }
    }

    pub fn row(&self, label: &str) -> Row {
        let quantile = |at| quantile_us(&self.release_to_grant, at).map(|us| us / 1e3);
        Row {
            label: format!("{label} {}", self.version),
            cells: vec![
                Some(self.per_second),
                quantile(0.5),
                quantile(0.99),
                Some(self.longest_wait as f64 / 1e6),
                Some(self.jain),
                Some(self.gave_up as f64),
                Some(self.overlaps as f64),
                Some(self.commands),
                Some(self.round_trips),
            ],
        }
    }

    /// What the module must keep to in every language, and the package of this project.
    pub fn bars(&self, peer: &Peer, terms: Terms) -> Vec<Bar> {
        let (many, request) =
            if terms.permits == 1 { ("two holders", "ACQUIRE") } else { ("more holders than permits", "SHARE LIMIT") };
        let at_most = |what: String, value, limit| Bar::at_most(format!("{what}, {}", peer.label), value, limit);
        let for_a_cycle = |what| format!("{what} for a contended {request} and its RELEASE");
        let overlaps = || at_most(format!("{many} at once"), self.overlaps as f64, 0.0);
        let round_trips = |limit| at_most(for_a_cycle("round trips"), self.round_trips, limit);
        match peer.kind {
            Kind::Other => Vec::new(),
            Kind::Commands => {
                let commands = at_most(for_a_cycle("server commands"), self.commands, MODULE_SENDS);
                vec![overlaps(), commands, round_trips(MODULE_NEEDS)]
            }
            Kind::Package => vec![overlaps(), round_trips(PACKAGE_NEEDS)],
        }
    }
}
