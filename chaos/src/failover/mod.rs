//! The failover scenarios: masters are replaced under Sentinel and in a cluster, while clients contend for locks and a
//! fault takes the old master away. No lock may have two holders at the same time. `--without-period` shows that the
//! check finds overlaps.
//!
//! [`nodes`] are the servers, with a network between them that can be cut; a [`round`] is one fault with one promotion.
//! [`client`]s note from when to when they believed that they held a lock, which goes into the history of the round. A
//! round in which the machine was too busy is repeated.

mod client;
mod nodes;
mod round;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::history::{HistoryFile, locked};
use nodes::Nodes;
pub use nodes::Topology;
use round::{Fault, Outcome};

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

#[derive(Args)]
pub struct FailoverOptions {
    /// Failover: the number of rounds of each fault
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Failover: set lock.recovery-ms to 0, so that overlaps are found
    #[arg(long)]
    without_period: bool,
    /// Failover: only these faults
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Fault::value_variants().to_vec())]
    faults: Vec<Fault>,
    /// Failover: the number of rounds at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
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
        "repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\nrepl-timeout {REPL_TIMEOUT_S}\n\
         min-replicas-max-lag {MAX_LAG_S}\nmin-replicas-to-write {REPLICAS}\nlock.max-lease-ms {}\n\
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
    /// The sums of the rounds with each fault that count.
    tally: BTreeMap<(Topology, Fault), Outcome>,
    repeated: usize,
    failure: Option<String>,
    history: Option<HistoryFile>,
}

/// Plays all rounds and prints the table.
pub fn run(
    options: FailoverOptions,
    topologies: &[Topology],
    seed: u64,
    history: Option<HistoryFile>,
) -> Result<String, String> {
    let FailoverOptions { rounds, without_period, faults, jobs } = options;
    let with_period = !without_period;
    let period = if with_period { recovery() } else { Duration::ZERO };
    println!("Seed {seed}: {rounds} rounds of each fault, lock.recovery-ms {}", period.as_millis());

    let mut random = fastrand::Rng::with_seed(seed);
    let each = topologies.iter().flat_map(|&topology| faults.iter().map(move |&fault| (topology, fault)));
    let mut left: Vec<(Topology, Fault)> = each.flat_map(|round| std::iter::repeat_n(round, rounds)).collect();
    random.shuffle(&mut left);
    let (started, tally) = (Instant::now(), BTreeMap::new());
    let all = Rounds { started, with_period, left, begun: 0, tally, repeated: 0, failure: None, history };
    let all = Mutex::new(all);
    thread::scope(|scope| {
        for number in 0..jobs.max(topologies.len()) {
            let (topology, random, all) = (topologies[number % topologies.len()], random.fork(), &all);
            scope.spawn(move || play_rounds(all, topology, random));
        }
    });
    all.into_inner().map_err(|_| "a thread has panicked".to_owned())?.verdict(topologies)
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
            Err(what) => locked(rounds).failure = Some(format!("{topology:?}, {fault:?}: {what}")),
        }
    }
}

impl Rounds {
    fn next(&mut self, topology: Topology) -> Option<(Fault, u32, Option<HistoryFile>)> {
        let place = self.left.iter().position(|(wanted, _)| *wanted == topology)?;
        self.failure.is_none().then_some(())?;
        self.begun += 1;
        Some((self.left.remove(place).1, self.begun, self.history.clone()))
    }

    fn note(&mut self, topology: Topology, fault: Fault, outcome: &Outcome) {
        let Outcome { rounds: _, grants, grants_of_old, overlaps, disturbance, .. } = outcome;
        let at = self.started.elapsed().as_secs();
        println!(
            "{at:4} s {topology:?}, {fault:?}: {grants} grants, {grants_of_old} by the old master after the fault, {} overlaps",
            overlaps.len()
        );
        if self.with_period {
            overlaps.iter().for_each(|overlap| println!("{overlap}"));
        }
        let Some(what) = disturbance else {
            let sum = self.tally.entry((topology, fault)).or_default();
            (sum.rounds, sum.grants, sum.grants_of_old) =
                (sum.rounds + 1, sum.grants + grants, sum.grants_of_old + grants_of_old);
            return sum.overlaps.extend(overlaps.first().cloned());
        };
        println!("       does not count, and is repeated: {}", what.lines().next().unwrap_or_default());
        self.repeated += 1;
        self.left.push((topology, fault));
        let counted: usize = self.tally.values().map(|sum| sum.rounds).sum();
        if self.repeated > REPETITIONS + REPETITIONS_PER_ROUND * counted {
            self.failure = Some("the machine is too busy for this".to_owned());
        }
    }

    fn verdict(self, topologies: &[Topology]) -> Result<String, String> {
        println!("\n| | fault | rounds | grants | by the old master after the fault | rounds with overlaps |");
        println!("|---|---|---|---|---|---|");
        for ((topology, fault), Outcome { rounds, grants, grants_of_old, overlaps, .. }) in &self.tally {
            println!("| {topology:?} | {fault:?} | {rounds} | {grants} | {grants_of_old} | {} |", overlaps.len());
        }
        println!("Rounds that did not count, and were repeated: {}\n", self.repeated);
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        for &topology in topologies {
            let rows = self.tally.iter().filter(|((of, _), _)| *of == topology);
            match (self.with_period, rows.map(|(_, sum)| sum.overlaps.len()).sum::<usize>()) {
                (true, 0) | (false, 1..) => {}
                (true, count) => return Err(format!("{topology:?}: a lock had two holders in {count} rounds")),
                (false, 0) => {
                    return Err(format!("{topology:?}: no overlap was found, so a run without one shows nothing"));
                }
            }
        }
        Ok(if self.with_period { "no overlaps" } else { "overlaps, as there is no period" }.to_owned())
    }
}
