//! `make chaos`: puts real servers with the module under load from real clients, makes faults that a seed chooses, and
//! checks from outside that the promises of the README hold.
//!
//! A [`scenario`] says what a run is about. In a [`load`] run [`clients`] ask for locks in many ways, [`faults`]
//! disturb the [`servers`], and the [`evidence`] excuses replies or forbids them; [`durability`] probes and the checks
//! at the [`end`] find locks that are forgotten or left behind. [`failover`] scenarios replace masters, and the
//! [`soak`] watches memory. All operations are in the [`history`], which has the checks of the holders of each lock.
//! The [`report`] is the first failure, or the goals that were not met.

mod clients;
mod durability;
mod end;
mod evidence;
mod failover;
mod faults;
mod history;
mod keys;
mod link;
mod load;
mod report;
mod run;
mod scenario;
mod servers;
mod snapshot;
mod soak;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};

use failover::{Fault, Topology};
use history::HistoryFile;
use scenario::Scenario;

/// Puts servers with the module under load and faults, and checks the promises of the module. SERVER names the server
/// binary, MODULE the module. Ends with status 1 if a promise is broken, a server crashes, or the run has not met what
/// its scenario is about.
#[derive(Parser)]
struct Options {
    /// What the run is about; by default the seed chooses one of plain to clock
    #[arg(long)]
    scenario: Option<Scenario>,
    /// The length of the run, in all scenarios but failover, sentinel and cluster
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(12..))]
    seconds: u64,
    /// Decides the settings of servers, the faults and the requests of clients; by default a new one for each run
    #[arg(long)]
    seed: Option<u64>,
    /// The number of clients that ask for locks
    #[arg(long, default_value_t = 48)]
    clients: usize,
    /// Leave this out, to see other failures than a known one
    #[arg(long, value_name = "PART")]
    without: Vec<Part>,
    /// Write all operations and faults to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Failover: the number of rounds of each fault
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Failover: set lock.recovery-ms to 0, so that overlaps are found
    #[arg(long)]
    without_period: bool,
    /// Failover: only these faults
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// Failover: the number of rounds at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// A part of a load run that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Requests with QUIT behind them
    Quit,
    /// Leases that end together
    Bursts,
    /// Stalls of the server
    Stalls,
    /// CLIENT UNBLOCK and CLIENT KILL
    Strikes,
    /// CLIENT PAUSE
    Pauses,
    /// DEBUG RELOAD
    Reloads,
    /// Commands of other clients on rough keys, and FLUSHALL
    External,
    /// Changes of lock.max-lease-ms and lock.recovery-ms
    Settings,
    /// Connections that are reset, silent or slow
    Network,
    /// BGSAVE and BGREWRITEAOF
    Saves,
    /// The faults of the scenario
    Scenario,
}

fn main() -> ExitCode {
    let started = Instant::now();
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    match run(options, seed, started) {
        Ok(what) => {
            println!("Held: {what}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            let broken = if what.starts_with("NOTHING MET") { "" } else { "BROKEN: " };
            println!("Seed {seed}: {broken}{what}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options, seed: u64, started: Instant) -> Result<String, String> {
    let Options { scenario, clients, without, rounds, without_period, jobs, .. } = options;
    let history = options.history.map(|path| HistoryFile::create(&path)).transpose();
    let history = history.map_err(|error| format!("the history cannot be written: {error}"))?;
    let topologies = match scenario {
        Some(Scenario::Sentinel) => vec![Topology::Sentinel],
        Some(Scenario::Cluster) => vec![Topology::Cluster],
        Some(Scenario::Failover) => vec![Topology::Sentinel, Topology::Cluster],
        _ => {
            let length = Duration::from_secs(options.seconds);
            return load::run(load::Plan { started, length, seed, clients, scenario, without, history });
        }
    };
    let faults = if options.faults.is_empty() { Fault::value_variants().to_vec() } else { options.faults };
    failover::run(failover::Options { rounds, without_period, faults, topologies, jobs, seed, history })
}
