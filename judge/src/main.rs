//! Two judges of the promises of redis-lock.
//!
//! `judge FILE...` decides whether the histories that `make chaos ARGS='--history FILE'` writes are linearizable.
//! [`history`] divides a file by locks and windows, [`specification`] says what a lock does, and the linearizability
//! tester of the crate `stateright` searches for an order of the calls, which gives the [`verdict`].
//!
//! `judge --failover` checks a model of [`failover`] against the claim of docs/guides/failover.md.

mod failover;
mod history;
mod specification;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use verdict::Report;

/// Judges histories of locks, or a model of failover.
#[derive(Parser)]
struct Options {
    /// Check the model of failover
    #[arg(long)]
    failover: bool,
    /// Histories, as JSON lines
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut is_good = true;
    if let Some(Err(what)) = options.failover.then(failover::run) {
        println!("{what}");
        is_good = false;
    }
    for path in &options.files {
        match history::read(path) {
            Err(what) => {
                println!("{what}");
                is_good = false;
            }
            Ok(locks) => {
                let mut report = Report::default();
                locks.iter().for_each(|lock| report.add(lock));
                println!("{}: {report}", path.display());
                is_good &= report.failures.is_empty() && report.undecided.is_empty();
            }
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
