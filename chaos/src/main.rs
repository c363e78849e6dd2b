//! `make chaos`: puts real servers with the module under load from real clients, makes faults that a seed chooses, and
//! checks from outside that the promises of the README hold.
//!
//! A [`scenario`] says what a run is about. In a [`load`] run [`clients`] ask for locks in many ways, and [`faults`]
//! disturb the [`servers`]. All operations are in the [`history`], which judges each reply by what is known of the token
//! and the lock; the [`evidence`] excuses replies or forbids them. [`durability`] probes and the checks at the [`end`]
//! find locks that are forgotten or left behind. [`failover`] scenarios replace masters, and the [`soak`] watches memory.
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

use clap::Parser;

use failover::Topology;
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
    /// Decides the settings of servers, the faults and the requests of clients; by default a new one for each run
    #[arg(long)]
    seed: Option<u64>,
    /// Write all operations and faults to this file, as JSON lines; in a soak to none
    #[arg(long, value_name = "FILE", default_value = "target/chaos.jsonl")]
    history: PathBuf,
    /// The length of the run, in all scenarios but failover, sentinel and cluster
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(12..))]
    seconds: u64,
    #[command(flatten)]
    failover: failover::FailoverOptions,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    match run(options, seed) {
        Ok(what) => {
            println!("Held: {what}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("Seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options, seed: u64) -> Result<String, String> {
    let Options { scenario, history: path, seconds, failover, .. } = options;
    let has_file = scenario != Some(Scenario::Soak);
    let file = if has_file { HistoryFile::create(&path) } else { Ok(HistoryFile::default()) };
    let file = file.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    let both = [Topology::Sentinel, Topology::Cluster];
    let result = match scenario {
        Some(Scenario::Sentinel) => failover::run(failover, &both[..1], seed, file),
        Some(Scenario::Cluster) => failover::run(failover, &both[1..], seed, file),
        Some(Scenario::Failover) => failover::run(failover, &both, seed, file),
        _ => load::run(seconds, scenario, seed, file),
    };
    let place = if has_file { format!("\nThe history is in {}", path.display()) } else { String::new() };
    result.map_err(|what| what + &place)
}
