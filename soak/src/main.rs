//! `make soak`: puts one server with the module under full load, in all ways of locking and without faults, and sees that its
//! memory stays the same.
//!
//! [`load`] asks for locks, [`memory`] looks at the server once a second, [`trend`] tells a rise from chance.

mod load;
mod memory;
mod trend;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use support::{Server, Setup};

use load::Load;
use memory::{Memory, Sample};
use trend::Trend;

/// Puts a server with the module under load, and sees that its memory stays the same. SERVER names the server binary, MODULE the
/// module. Ends with status 1 if memory rises, or something is left behind.
#[derive(Parser)]
struct Options {
    /// How long
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(12..))]
    seconds: u64,
    /// How many clients ask for locks
    #[arg(long, default_value_t = 48)]
    clients: usize,
    /// What chooses what they do
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A place in line is kept for a second only, so that as many as ever will be are there soon. The server's list of slow commands
/// would grow for as long as some are.
const CONFIG: &str = "lock.rejoin-grace-ms 1000\nslowlog-log-slower-than -1";

/// What the module would lose if one request in a thousand lost the smallest piece of memory that there is, in bytes for each
/// request. Whatever loses memory in each of some kind of request loses more.
const MOST_PER_REQUEST: f64 = 16.0 / 1000.0;

fn main() -> ExitCode {
    let options = Options::parse();
    let server = Setup::new().config(CONFIG).start();
    let mut memory = Memory::of(&server);
    let load = Load::start(&server, options.clients, options.seed);
    let samples = watch(&mut memory, &load, Duration::from_secs(options.seconds));
    let requests = load.end();
    // The first sixth is for tables and pools to grow.
    let steady = &samples[samples.len() / 6..];
    let minutes = steady.last().map_or(0.0, |last| (last.at - steady[0].at).as_secs_f64() / 60.0);
    let requests_a_minute = steady.last().map_or(0, |last| last.requests - steady[0].requests) as f64 / minutes;
    println!("{requests} requests in {} s", options.seconds);
    let most = MOST_PER_REQUEST * requests_a_minute;
    let used = is_flat("used_memory", steady, most, |sample| sample.used);
    let resident = is_flat("resident memory", steady, most, |sample| sample.resident);
    let is_empty = memory.is_left_empty();
    println!("{}", if is_empty { "nothing is left of waiters and sessions" } else { "waiters or sessions are LEFT" });
    drop::<Server>(server);
    if used && resident && is_empty { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn watch(memory: &mut Memory, load: &Load, length: Duration) -> Vec<Sample> {
    let (begun, mut samples) = (Instant::now(), Vec::new());
    while begun.elapsed() < length {
        thread::sleep(Duration::from_secs(1));
        let sample = memory.sample(begun.elapsed(), load.requests());
        if samples.len() % 60 == 0 {
            let Sample { requests, used, resident, .. } = &sample;
            println!("{requests} requests, {:.0} KB used, {:.0} KB resident", used / 1000.0, resident / 1000.0);
        }
        samples.push(sample);
    }
    samples
}

/// Shows how a figure has developed, in the second and the last sixth of the time and in between. Returns whether it has not
/// risen by more than `most` bytes a minute for certain.
fn is_flat(what: &str, steady: &[Sample], most: f64, figure: fn(&Sample) -> f64) -> bool {
    let points: Vec<(f64, f64)> =
        steady.iter().map(|sample| (sample.at.as_secs_f64() / 60.0, figure(sample))).collect();
    let sixth = points.len() / 5;
    let mean = |points: &[(f64, f64)]| points.iter().map(|(_, bytes)| bytes).sum::<f64>() / points.len() as f64;
    let (second, last) = (mean(&points[..sixth]), mean(&points[points.len() - sixth..]));
    let Trend { slope, error } = Trend::of(&points);
    let is_flat = slope - 3.0 * error <= most;
    println!(
        "{what}: {:.0} KB in the second sixth, {:.0} KB in the last; {slope:+.0} bytes a minute, give or take {error:.0}, \
         of {most:.0}{}",
        second / 1000.0,
        last / 1000.0,
        if is_flat { "" } else { ": it RISES" },
    );
    is_flat
}
