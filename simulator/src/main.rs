//! Runs the module in simulated servers, with histories that a seed determines, and checks the contract.

mod search;

use std::panic;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};
use redis_lock::server::{Fault, set_fault};

use search::{Failure, Search};
use simulator::play::Play;
use simulator::seed::{MAX_STEPS, config, run_once};
use simulator::step::History;
use simulator::strategy;
use simulator::tally::Tally;

/// Simulates servers with the module, checks the contract, and shrinks a failing history.
#[derive(Parser)]
struct Options {
    /// The number of seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed. The others follow it. Without this option, it is random.
    #[arg(long)]
    seed: Option<u64>,
    /// The most steps of a history.
    #[arg(long, default_value_t = MAX_STEPS)]
    steps: usize,
    /// The time limit in seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// The number of seeds that run at the same time.
    #[arg(long, default_value_t = thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Shows every event of a failing history.
    #[arg(long)]
    trace: bool,
    /// Gives the simulated servers this fault.
    #[arg(long, value_parser = find_fault)]
    fault: Option<Fault>,
}

fn find_fault(name: &str) -> Result<Fault, String> {
    Fault::find(name).ok_or_else(|| "there is no such fault: `hunt --list` shows all".to_owned())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let first = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("simulating from seed {first}");
    // The message of a panic is shown after the history has been shrunk.
    panic::set_hook(Box::new(|_| {}));
    let search = Search::new(first, options.seeds, options.seconds.map(Duration::from_secs));
    let failure = search.run(options.jobs, |seed| {
        set_fault(options.fault);
        run(seed, options.steps)
    });
    if let Some((seed, (why, history))) = &failure {
        set_fault(options.fault);
        report(*seed, why, history, options.trace);
    }
    println!("{}", search.summary());
    if failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the history of a seed. If it fails, returns the shrunk history, with the reason of its failure.
fn run(seed: u64, steps: usize) -> Result<Tally, Failure> {
    let (outcome, tally) = run_once(seed, steps, config());
    match outcome {
        Ok(()) => Ok(tally),
        Err(TestError::Fail(why, history)) => Err(thin_out(why.to_string(), history)),
        Err(TestError::Abort(why)) => Err((why.to_string(), History::empty())),
    }
}

/// Removes every step that a failing history does not need. A step can become needless when other steps have become
/// simpler.
fn thin_out(mut why: String, mut history: History) -> Failure {
    loop {
        let len = history.steps.len();
        let outcome = TestRunner::new(config()).run(&strategy::parts_of(&history), |history| {
            Play::new(&history, false).run().map_err(TestCaseError::fail)
        });
        let Err(TestError::Fail(reason, thinner)) = outcome else { return (why, history) };
        (why, history) = (reason.to_string(), thinner);
        if history.steps.len() == len {
            return (why, history);
        }
    }
}

fn report(seed: u64, why: &str, history: &History, trace: bool) {
    println!("\nseed {seed} fails: {why}\n{history:?}");
    if trace {
        let result = panic::catch_unwind(|| Play::new(history, true).run());
        println!("{result:?}");
    }
}
