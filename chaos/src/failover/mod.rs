//! The failover scenarios: masters are replaced under Sentinel and in a cluster, while clients contend for locks and a
//! fault takes the old master away. No lock may have two holders at the same time. `--without-period` shows that the
//! check finds overlaps.
//!
//! [`nodes`] are the servers, with a network between them that can be cut; a [`round`] is one fault with one promotion.
//! [`client`]s note from when to when they believed that they held a lock, which goes into the history of the round. A
//! round in which the machine was too busy is repeated.

mod client;
mod contest;
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

/// The recovery period follows from the rule of docs/guides/failover.md.
fn config(with_period: bool) -> String {
    let recovery = MAX_LEASE + Duration::from_secs(REPL_TIMEOUT_S.max(MAX_LAG_S + 3)) + DELAY;
    let recovery_ms = if with_period { recovery.as_millis() } else { 0 };
    format!(
        "repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\nrepl-timeout {REPL_TIMEOUT_S}\n\
         min-replicas-max-lag {MAX_LAG_S}\nmin-replicas-to-write {REPLICAS}\nlock.max-lease-ms {}\n\
         lock.recovery-ms {recovery_ms}",
        MAX_LEASE.as_millis()
    )
}

/// What the threads that play rounds share.
struct Rounds {
    started: Instant,
    with_period: bool,
    /// The rounds to play, and how often each was repeated.
    left: Vec<(Topology, Fault, usize)>,
    begun: u32,
    /// The rounds that count.
    played: Vec<(Topology, Fault, Outcome)>,
    failure: Option<String>,
    file: HistoryFile,
}

/// Plays all rounds and prints the table. Fails if a lock had two holders, or without a period none had, or a master
/// grants nothing.
pub fn run(options: FailoverOptions, of: &[Topology], seed: u64, file: HistoryFile) -> Result<String, String> {
    let FailoverOptions { rounds, without_period, faults, jobs } = options;
    let with_period = !without_period;
    println!("Seed {seed}: {rounds} rounds of each fault, {}", config(with_period).replace('\n', ", "));
    let mut random = fastrand::Rng::with_seed(seed);
    let each = of.iter().flat_map(|&topology| faults.iter().map(move |&fault| (topology, fault, 0)));
    let mut left: Vec<_> = each.flat_map(|round| std::iter::repeat_n(round, rounds)).collect();
    random.shuffle(&mut left);
    let (started, played) = (Instant::now(), Vec::new());
    let all = Mutex::new(Rounds { started, with_period, left, begun: 0, played, failure: None, file });
    thread::scope(|scope| {
        for number in 0..jobs.max(of.len()) {
            let (topology, random, all) = (of[number % of.len()], random.fork(), &all);
            scope.spawn(move || play_rounds(all, topology, random));
        }
    });
    all.into_inner().map_err(|_| "a thread has panicked".to_owned())?.verdict(of, &faults)
}

/// Plays rounds with the same servers until none is left.
fn play_rounds(rounds: &Mutex<Rounds>, topology: Topology, mut random: fastrand::Rng) {
    let with_period = locked(rounds).with_period;
    let mut nodes = Nodes::start(topology, with_period);
    loop {
        let Some((fault, repeated, history)) = locked(rounds).next(topology) else { return };
        let result = round::play(&mut nodes, fault, history, &mut random);
        if result.as_ref().is_ok_and(|outcome| outcome.is_lost) {
            nodes = Nodes::start(topology, with_period);
        }
        locked(rounds).note(topology, fault, repeated, result);
    }
}

impl Rounds {
    fn next(&mut self, topology: Topology) -> Option<(Fault, usize, (u32, HistoryFile))> {
        let place = self.left.iter().position(|(wanted, ..)| *wanted == topology && self.failure.is_none())?;
        let (_, fault, repeated) = self.left.remove(place);
        self.begun += 1;
        Some((fault, repeated, (self.begun, self.file.clone())))
    }

    fn note(&mut self, topology: Topology, fault: Fault, repeated: usize, result: Result<Outcome, String>) {
        let name = format!("{:4} s {topology:?}, {fault:?}", self.started.elapsed().as_secs());
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(what) => return self.failure = Some(format!("{name}: {what}")),
        };
        let Outcome { grants, grants_of_old, overlap, .. } = &outcome;
        let overlap = overlap.as_deref().unwrap_or("no overlap");
        println!("{name}: {grants} grants, {grants_of_old} by the old master after the fault, {overlap}");
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
        let mut all = 0;
        for topology in topologies {
            for fault in faults {
                let of_both = self.played.iter().filter(|(one, other, _)| one == topology && other == fault);
                let [rounds, grants, of_old, overlaps] =
                    of_both.fold([0; 4], |[rounds, grants, old, with], (.., own)| {
                        let has_overlap = usize::from(own.overlap.is_some());
                        [rounds + 1, grants + own.grants, old + own.grants_of_old, with + has_overlap]
                    });
                println!("| {topology:?} | {fault:?} | {rounds} | {grants} | {of_old} | {overlaps} |");
                all += overlaps;
            }
        }
        match (self.failure, self.with_period, all) {
            (Some(failure), ..) => Err(failure),
            (None, true, 0) => Ok("no overlaps".to_owned()),
            (None, true, _) => Err(format!("a lock had two holders in {all} rounds")),
            (None, false, 0) => Err("no overlap was found, so a run without one shows nothing".to_owned()),
            (None, false, _) => Ok("overlaps, as there is no period".to_owned()),
        }
    }
}
