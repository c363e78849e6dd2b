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

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::history::{HistoryFile, locked};
use nodes::Nodes;
pub use nodes::Topology;
use round::{Fault, Outcome};

const MAX_LEASE: Duration = Duration::from_secs(1);
/// The replicas of each master, all of which must be connected.
const REPLICAS: usize = 2;
/// By how much replication is delayed before a master is killed.
const DELAY: Duration = Duration::from_millis(500);
/// After so much silence a Sentinel, or a node of a cluster, takes another for down.
const DOWN_AFTER_MS: u32 = 700;
const MAX_LAG_S: u64 = 1;
const REPL_TIMEOUT_S: u64 = 3;
/// How often a round can be repeated.
const REPETITIONS: usize = 6;

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

fn config(with_period: bool) -> String {
    let recovery_ms = if with_period { recovery().as_millis() } else { 0 };
    format!(
        "repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\nrepl-timeout {REPL_TIMEOUT_S}\n\
         min-replicas-max-lag {MAX_LAG_S}\nmin-replicas-to-write {REPLICAS}\nlock.max-lease-ms {}\n\
         lock.recovery-ms {recovery_ms}",
        MAX_LEASE.as_millis()
    )
}

/// A round to play, and the number of its repetitions.
type Wanted = (Topology, Fault, usize);

struct Rounds {
    started: Instant,
    with_period: bool,
    left: Vec<Wanted>,
    begun: u32,
    /// The rounds that count.
    played: Vec<(Topology, Fault, Outcome)>,
    failure: Option<String>,
    history: Option<HistoryFile>,
}

/// Plays all rounds and prints the table. Fails if a lock had two holders, or without a period none had, or a master
/// grants nothing.
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
    let each = topologies.iter().flat_map(|&topology| faults.iter().map(move |&fault| (topology, fault, 0)));
    let mut left: Vec<Wanted> = each.flat_map(|round| std::iter::repeat_n(round, rounds)).collect();
    random.shuffle(&mut left);
    let (started, played) = (Instant::now(), Vec::new());
    let all = Mutex::new(Rounds { started, with_period, left, begun: 0, played, failure: None, history });
    thread::scope(|scope| {
        for number in 0..jobs.max(topologies.len()) {
            let (topology, random, all) = (topologies[number % topologies.len()], random.fork(), &all);
            scope.spawn(move || play_rounds(all, topology, random));
        }
    });
    all.into_inner().map_err(|_| "a thread has panicked".to_owned())?.verdict(topologies, &faults)
}

/// Plays rounds with the same servers until none is left.
fn play_rounds(rounds: &Mutex<Rounds>, topology: Topology, mut random: fastrand::Rng) {
    let with_period = locked(rounds).with_period;
    let mut nodes = Nodes::start(topology, with_period);
    loop {
        let Some((wanted, history)) = locked(rounds).next(topology) else { return };
        let result = round::play(&mut nodes, wanted.1, history, &mut random);
        if result.as_ref().is_ok_and(|outcome| outcome.is_lost) {
            nodes = Nodes::start(topology, with_period);
        }
        locked(rounds).note(wanted, result);
    }
}

impl Rounds {
    fn next(&mut self, topology: Topology) -> Option<(Wanted, (u32, Option<HistoryFile>))> {
        let place = self.left.iter().position(|(wanted, ..)| *wanted == topology)?;
        self.failure.is_none().then_some(())?;
        self.begun += 1;
        Some((self.left.remove(place), (self.begun, self.history.clone())))
    }

    fn note(&mut self, (topology, fault, repeated): Wanted, result: Result<Outcome, String>) {
        let name = format!("{:4} s {topology:?}, {fault:?}", self.started.elapsed().as_secs());
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(what) => return self.failure = Some(format!("{name}: {what}")),
        };
        println!("{name}: {outcome}");
        if self.with_period {
            outcome.overlaps.iter().for_each(|overlap| println!("{overlap}"));
        }
        match &outcome.disturbance {
            None => self.played.push((topology, fault, outcome)),
            Some(what) if repeated < REPETITIONS => {
                println!("       does not count, and is repeated: {}", what.lines().next().unwrap_or_default());
                self.left.push((topology, fault, repeated + 1));
            }
            Some(what) => self.failure = Some(format!("the machine is too busy for this: {what}")),
        }
    }

    fn verdict(self, topologies: &[Topology], faults: &[Fault]) -> Result<String, String> {
        println!("\n| | fault | rounds | grants | by the old master after the fault | rounds with overlaps |");
        println!("|---|---|---|---|---|---|");
        let mut verdict = self.failure.map_or(Ok(()), Err);
        for topology in topologies {
            let mut all = 0;
            for fault in faults {
                let of_both = self.played.iter().filter(|(one, other, _)| one == topology && other == fault);
                let rows: Vec<&Outcome> = of_both.map(|(.., outcome)| outcome).collect();
                let sum = |of: fn(&Outcome) -> usize| rows.iter().map(|outcome| of(outcome)).sum::<usize>();
                let (grants, of_old) = (sum(|own| own.grants), sum(|own| own.grants_of_old));
                let overlaps = sum(|own| usize::from(!own.overlaps.is_empty()));
                println!("| {topology:?} | {fault:?} | {} | {grants} | {of_old} | {overlaps} |", rows.len());
                all += overlaps;
            }
            verdict = verdict.and(match (self.with_period, all) {
                (true, 0) | (false, 1..) => Ok(()),
                (true, count) => Err(format!("{topology:?}: a lock had two holders in {count} rounds")),
                (false, 0) => Err(format!("{topology:?}: no overlap was found, so a run without one shows nothing")),
            });
        }
        verdict.map(|()| if self.with_period { "no overlaps" } else { "overlaps, as there is no period" }.to_owned())
    }
}
