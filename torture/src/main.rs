//! `make torture`: puts one real server with the module under load from real clients, makes faults that a seed chooses,
//! and checks from outside that the promises of the README hold all the while.
//!
//! [`member`]s ask for locks in many ways and check what they are told, those who are [`notified`] wait without blocking their
//! connection; [`faults`] disturb the server and its clients;
//! [`watch`] looks at locks, [`bursts`] lets leases end in crowds. The [`ledger`] knows who held what when, the
//! [`weather`] when the server was held up. The first finding goes to the [`court`] and ends the run.

mod bursts;
mod clock;
mod cluster;
mod court;
mod deposit;
mod ending;
mod faults;
mod figures;
mod flushes;
mod ground;
mod keys;
mod ledger;
mod link;
mod member;
mod network;
mod notified;
mod owed;
mod pauses;
mod pulse;
mod quiet;
mod run;
mod scene;
mod settings;
mod token;
mod watch;
mod weather;
mod whereabouts;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};

use run::Verdict;

/// Puts a server with the module under load and faults, and checks its promises. SERVER names the server binary, MODULE
/// the module. Ends with status 1 if a promise is broken, the server crashes, or nothing was met of what the run is about.
#[derive(Parser)]
struct Options {
    /// How long it may take in all
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..))]
    seconds: u64,
    /// What chooses the server's settings, the faults and what clients do; by default a new one each time
    #[arg(long)]
    seed: Option<u64>,
    /// How many clients ask for locks
    #[arg(long, default_value_t = 48)]
    clients: usize,
    /// What the run is about; by default the seed chooses
    #[arg(long)]
    ground: Option<ground::Kind>,
    /// Leave this out, to see what else there is beside something that is known
    #[arg(long, value_name = "PART")]
    without: Vec<Part>,
}

/// What can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Requests with QUIT behind them
    Quit,
    /// Leases that end together
    Bursts,
    /// Everything that holds the server up
    Stalls,
    /// CLIENT UNBLOCK and CLIENT KILL
    Strikes,
    /// CLIENT PAUSE
    Pauses,
    /// DEBUG RELOAD
    Reloads,
    /// Commands of other clients on rough keys, and FLUSHALL
    Foreign,
    /// Other values of lock.max-lease-ms and lock.recovery-ms
    Settings,
    /// Connections that are reset, go silent or are slow
    Network,
    /// BGSAVE and BGREWRITEAOF
    Saves,
    /// What the ground is about
    Ground,
}

fn main() -> ExitCode {
    let started = Instant::now();
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let length = Duration::from_secs(options.seconds);
    let plan =
        run::Plan { started, length, seed, clients: options.clients, ground: options.ground, without: options.without };
    match run::run(&plan) {
        Verdict::Held(figures) => {
            println!("Held: {figures}");
            ExitCode::SUCCESS
        }
        Verdict::Broken(what) => {
            println!("BROKEN with seed {seed}: {what}");
            ExitCode::FAILURE
        }
        Verdict::NothingMet(what) => {
            println!("NOTHING MET with seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}
