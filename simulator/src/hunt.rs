//! Plants defects one by one, and looks how long it takes to find each.

use std::fmt;
use std::panic;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, TestError};
use redis_lock::planted::{Bug, choose};

use simulator::seed::{config, run_once};
use simulator::tally::Tally;

/// How long a defect may stay unfound.
const LIMIT: Duration = Duration::from_secs(60);

/// The most steps of a history.
const STEPS: usize = 400;

/// What became of a hunt.
struct Hunt {
    bug: Option<Bug>,
    tally: Tally,
    time: Duration,
    /// What the checker said, with the seed.
    found: Option<(u64, String)>,
}

/// Reads the number or the name of a defect.
pub fn parse(number_or_name: &str) -> Result<Bug, String> {
    Bug::find(number_or_name).ok_or_else(|| "there is no such defect: see --list-planted".to_owned())
}

/// Shows all defects.
pub fn list() -> ExitCode {
    for bug in Bug::ALL {
        println!("{:>3} {:<24} {}", bug.number(), bug.name(), bug.what());
    }
    ExitCode::SUCCESS
}

/// Hunts all defects, or one, and shows how it went.
pub fn all(only: Option<Bug>) -> ExitCode {
    let hunts = hunt_all(only);
    let missed = hunts.iter().filter(|hunt| hunt.found.is_none()).count();
    println!("{} of {} found", hunts.len() - missed, hunts.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Hunts all defects, several at a time, and shows each when it was found.
fn hunt_all(only: Option<Bug>) -> Vec<Hunt> {
    // What a history panics with is one of the things that are found.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let left = Mutex::new(Bug::ALL.iter().filter(|&&bug| only.is_none_or(|only| only == bug)));
    let next = || left.lock().ok()?.next().copied();
    let work = || {
        let mut hunts = Vec::new();
        while let Some(bug) = next() {
            let hunt = hunt(Some(bug), u64::MAX);
            println!("{hunt}");
            hunts.push(hunt);
        }
        hunts
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let hunts = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    });
    panic::set_hook(hook);
    hunts
}

/// Runs seeds with a defect until one fails, the time is over or there were so many.
fn hunt(bug: Option<Bug>, seeds: u64) -> Hunt {
    choose(bug);
    let begin = Instant::now();
    let mut tally = Tally::default();
    let config = Config { max_shrink_iters: 0, ..config() };
    for seed in 1..=seeds {
        let (outcome, one) = run_once(seed, STEPS, config.clone());
        tally += one;
        let time = begin.elapsed();
        if let Err(TestError::Fail(why, _) | TestError::Abort(why)) = outcome {
            let why = why.to_string();
            if bug.is_none_or(|bug| is_found(bug, seed, &why, &config)) {
                return Hunt { bug, tally, time, found: Some((seed, why)) };
            }
        }
        if bug.is_some() && time > LIMIT {
            break;
        }
    }
    Hunt { bug, tally, time: begin.elapsed(), found: None }
}

/// Whether what a seed fails with is this defect: it looks like it, and is not there without it.
fn is_found(bug: Bug, seed: u64, why: &str, config: &Config) -> bool {
    if !why.contains(bug.sign()) {
        return false;
    }
    choose(None);
    let is_sound = run_once(seed, STEPS, config.clone()).0.is_ok();
    choose(Some(bug));
    is_sound
}

impl fmt::Display for Hunt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: usize = 110;
        let (number, name) = self.bug.map_or((0, "none"), |bug| (bug.number(), bug.name()));
        let (seeds, requests, seconds) = (self.tally.histories, self.tally.requests, self.time.as_secs_f64());
        let said = match &self.found {
            Some((seed, why)) => format!("seed {seed}: {}", why.chars().take(WIDTH).collect::<String>()),
            None => "not found".to_owned(),
        };
        write!(f, "{number:>3} {name:<24} {seeds:>6} seeds {requests:>8} requests {seconds:>6.2} s  {said}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With what the module is like by itself nothing is found, so what is found below is the defect.
    #[test]
    fn each_planted_defect_is_found_in_a_minute_and_nothing_without() {
        let without = hunt(None, 3000);
        println!("{without}");
        assert!(without.found.is_none());
        let hunts = hunt_all(None);
        let missed: Vec<_> =
            hunts.iter().filter(|hunt| hunt.found.is_none()).filter_map(|hunt| Some(hunt.bug?.name())).collect();
        assert!(missed.is_empty(), "not found: {missed:?}");
        assert_eq!(hunts.len(), Bug::ALL.len());
    }
}
