//! `make failover`: replaces real masters under Sentinel and in a cluster, while clients contend for locks and a fault takes
//! the old master away, and checks that no lock ever has two holders at once. `--without-period` shows that the check
//! finds them where there are any.
//!
//! A [`scene`] has the servers, and a [`network`] between them that can be cut; a [`round`] is one [`fault`] with one
//! promotion. [`client`]s note in the [`ledger`] from when to when they believed that they held a lock. A round in which the
//! [`weather`] was bad is played again.

mod client;
mod fault;
mod field;
mod ledger;
mod network;
mod round;
mod run;
mod scene;
mod settings;
mod tally;
mod weather;

use std::process::ExitCode;

use clap::Parser;

use crate::fault::Fault;
use crate::scene::Topology;

/// Replaces masters with the module under faults, and checks that no lock has two holders at once. SERVER names the server
/// binary, MODULE the module. Ends with status 1 if there were two, or without the period none.
#[derive(Parser)]
pub struct Options {
    /// How many rounds of each fault
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// What chooses the moments of the faults and what clients do; by default a new one each time
    #[arg(long)]
    seed: Option<u64>,
    /// Set lock.recovery-ms to 0: overlaps are found then
    #[arg(long)]
    without_period: bool,
    /// Only these faults
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// Only one of the two
    #[arg(long)]
    topology: Option<Topology>,
    /// How many rounds are played at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    match run::run(&options, seed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("BROKEN with seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}
