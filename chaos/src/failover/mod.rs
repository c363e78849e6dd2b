//! The failover scenarios: masters are replaced under Sentinel and in a cluster, while clients contend for locks and a
//! fault takes the old master away. No lock may have two holders at the same time. `--without-period` shows that the
//! check finds overlaps.
//!
//! [`nodes`] are the servers, with a network between them that can be cut; a [`round`] is one [`fault`] with one
//! promotion. [`client`]s note from when to when they believed that they held a lock, which goes into the history of
//! the round. A round in which the machine was too busy is repeated.

mod client;
mod cluster;
mod fault;
mod nodes;
mod round;
mod sentinel;
mod tally;

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::history::{HistoryFile, locked};
pub use fault::Fault;
use nodes::Nodes;
pub use nodes::Topology;
use round::Outcome;
use tally::Tally;

/// The longest lease.
const MAX_LEASE: Duration = Duration::from_secs(1);
/// The replicas of each master, all of which must be connected.
const REPLICAS: usize = 2;
/// By how much replication is delayed before a master is killed.
const DELAY: Duration = Duration::from_millis(500);
/// After so much silence a Sentinel, or a node of a cluster, takes another for down.
const DOWN_AFTER_MS: u32 = 700;
const MAX_LAG_S: u64 = 1;
const REPL_TIMEOUT_S: u64 = 3;
/// How many rounds can be repeated in any case, and how many more for each that has counted.
const REPETITIONS: usize = 12;
const REPETITIONS_PER_ROUND: usize = 3;

pub struct Options {
    /// The number of rounds of each fault
    pub rounds: usize,
    /// Set lock.recovery-ms to 0
    pub without_period: bool,
    /// Empty for all
    pub faults: Vec<Fault>,
    pub topologies: Vec<Topology>,
    /// The number of rounds at a time
    pub jobs: usize,
    pub seed: u64,
    pub history: Option<HistoryFile>,
}

/// The recovery period that follows from the rule of docs/guides/failover.md.
fn recovery() -> Duration {
    let noticed = Duration::from_secs(MAX_LAG_S + 3).max(Duration::from_secs(REPL_TIMEOUT_S));
    MAX_LEASE + noticed + DELAY
}

/// The configuration of all servers.
fn config(with_period: bool) -> String {
    let recovery_ms = if with_period { recovery().as_millis() } else { 0 };
    format!(
        "repl-diskless-sync-delay 0\n\
         repl-ping-replica-period 1\n\
         repl-timeout {REPL_TIMEOUT_S}\n\
         min-replicas-max-lag {MAX_LAG_S}\n\
         min-replicas-to-write {REPLICAS}\n\
         lock.max-lease-ms {}\n\
         lock.recovery-ms {recovery_ms}",
        MAX_LEASE.as_millis()
    )
}

/// What the threads of a run share.
struct Rounds {
    started: Instant,
    with_period: bool,
    left: Vec<(Topology, Fault)>,
    begun: u32,
    tally: Tally,
    failure: Option<String>,
    history: Option<HistoryFile>,
}

/// Plays all rounds and prints the table.
///
/// # Errors
///
/// A lock had two holders, or without a period none had, or a master grants nothing.
pub fn run(options: Options) -> Result<String, String> {
    let Options { rounds, without_period, faults, topologies, jobs, seed, history } = options;
    let with_period = !without_period;
    let period = if with_period { recovery() } else { Duration::ZERO };
    println!("Seed {seed}: {rounds} rounds of each fault, lock.recovery-ms {}", period.as_millis());

    let mut random = fastrand::Rng::with_seed(seed);
    let tally = Tally::new(&topologies, &faults);
    let each = topologies.iter().flat_map(|&topology| faults.iter().map(move |&fault| (topology, fault)));
    let mut left: Vec<(Topology, Fault)> = each.flat_map(|round| std::iter::repeat_n(round, rounds)).collect();
    random.shuffle(&mut left);
    let rounds = Rounds { started: Instant::now(), with_period, left, begun: 0, tally, failure: None, history };
    let rounds = Mutex::new(rounds);
    thread::scope(|scope| {
        for number in 0..jobs.max(topologies.len()) {
            let (topology, random, rounds) = (topologies[number % topologies.len()], random.fork(), &rounds);
            scope.spawn(move || play_rounds(rounds, topology, random));
        }
    });
    let rounds = rounds.into_inner().map_err(|_| "a thread has panicked".to_owned())?;
    println!("\n{}", rounds.tally);
    rounds.verdict(&topologies)
}

/// Plays rounds with the same servers until none is left.
fn play_rounds(rounds: &Mutex<Rounds>, topology: Topology, mut random: fastrand::Rng) {
    let with_period = locked(rounds).with_period;
    let mut nodes = Nodes::start(topology, with_period);
    loop {
        let Some((fault, number, history)) = locked(rounds).next(topology) else { return };
        match round::play(&mut nodes, fault, (number, history), &mut random) {
            Ok(outcome) => {
                locked(rounds).note(topology, fault, &outcome);
                if outcome.is_lost {
                    nodes = Nodes::start(topology, with_period);
                }
            }
            Err(what) => locked(rounds).failure = Some(format!("{topology}, {fault}: {what}")),
        }
    }
}

impl Rounds {
    fn next(&mut self, topology: Topology) -> Option<(Fault, u32, Option<HistoryFile>)> {
        let place = self.left.iter().position(|(wanted, _)| *wanted == topology)?;
        if self.failure.is_some() {
            return None;
        }
        self.begun += 1;
        Some((self.left.remove(place).1, self.begun, self.history.clone()))
    }

    fn note(&mut self, topology: Topology, fault: Fault, outcome: &Outcome) {
        let at = self.started.elapsed().as_secs();
        println!("{at:4} s {topology}, {fault}: {outcome}");
        if self.with_period {
            outcome.overlaps.iter().for_each(|overlap| println!("{overlap}"));
        }
        let Some(what) = &outcome.disturbance else { return self.tally.add(topology, fault, outcome) };
        println!("       does not count, and is repeated: {}", what.lines().next().unwrap_or_default());
        self.tally.repeated += 1;
        self.left.push((topology, fault));
        if self.tally.repeated > REPETITIONS + REPETITIONS_PER_ROUND * self.tally.rounds() {
            self.failure = Some("the machine is too busy for this".to_owned());
        }
    }

    fn verdict(self, topologies: &[Topology]) -> Result<String, String> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        for &topology in topologies {
            match (self.with_period, self.tally.with_overlaps(topology)) {
                (true, 0) | (false, 1..) => {}
                (true, count) => return Err(format!("{topology}: a lock had two holders in {count} rounds")),
                (false, 0) => {
                    return Err(format!("{topology}: no overlap was found, so a run without one shows nothing"));
                }
            }
        }
        Ok(if self.with_period { "no overlaps" } else { "overlaps, as there is no period" }.to_owned())
    }
}
