//! All rounds of a run, several at a time.

use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use clap::ValueEnum;

use crate::Options;
use crate::fault::Fault;
use crate::round::{self, Outcome};
use crate::scene::{Scene, Topology};
use crate::settings;
use crate::tally::Tally;

/// How many rounds may be repeated in any case, and how many more for each that has counted.
const REPETITIONS: usize = 12;
const REPETITIONS_PER_ROUND: usize = 3;

/// What the threads of a run share.
struct Rounds {
    started: Instant,
    with_period: bool,
    left: Vec<(Topology, Fault)>,
    tally: Tally,
    failure: Option<String>,
}

/// Plays all rounds and shows the table; Err with what is wrong.
pub fn run(options: &Options, seed: u64) -> Result<(), String> {
    let topologies: Vec<Topology> =
        options.topology.map_or_else(|| Topology::value_variants().to_vec(), |topology| vec![topology]);
    let faults = if options.faults.is_empty() { Fault::value_variants().to_vec() } else { options.faults.clone() };
    let with_period = !options.without_period;
    let period = if with_period { settings::recovery() } else { std::time::Duration::ZERO };
    println!("Seed {seed}: {} rounds of each fault, lock.recovery-ms {}", options.rounds, period.as_millis());

    let mut random = fastrand::Rng::with_seed(seed);
    let each = |topology: Topology| faults.iter().map(move |&fault| (topology, fault));
    let mut left: Vec<(Topology, Fault)> =
        topologies.iter().flat_map(|&topology| each(topology).cycle().take(options.rounds * faults.len())).collect();
    random.shuffle(&mut left);
    let tally = Tally::new(&topologies, &faults);
    let rounds = Mutex::new(Rounds { started: Instant::now(), with_period, left, tally, failure: None });
    thread::scope(|scope| {
        for number in 0..options.jobs.max(topologies.len()) {
            let (topology, random) = (topologies[number % topologies.len()], random.fork());
            let rounds = &rounds;
            scope.spawn(move || work(rounds, topology, random));
        }
    });
    let rounds = rounds.into_inner().map_err(|_| "a thread has panicked".to_owned())?;
    println!("\n{}", rounds.tally);
    verdict(&rounds, &topologies)
}

/// Plays rounds in one scene until none is left.
fn work(rounds: &Mutex<Rounds>, topology: Topology, mut random: fastrand::Rng) {
    let with_period = lock(rounds).with_period;
    let mut scene = Scene::start(topology, with_period);
    while let Some(fault) = next(rounds, topology) {
        match round::play(&mut scene, fault, &mut random) {
            Ok(outcome) => {
                lock(rounds).note(topology, fault, &outcome);
                if outcome.is_lost {
                    scene = Scene::start(topology, with_period);
                }
            }
            Err(what) => lock(rounds).failure = Some(format!("{topology}, {fault}: {what}")),
        }
    }
}

fn next(rounds: &Mutex<Rounds>, topology: Topology) -> Option<Fault> {
    let mut rounds = lock(rounds);
    if rounds.failure.is_some() {
        return None;
    }
    let place = rounds.left.iter().position(|(wanted, _)| *wanted == topology)?;
    Some(rounds.left.remove(place).1)
}

fn lock(rounds: &Mutex<Rounds>) -> MutexGuard<'_, Rounds> {
    rounds.lock().expect("a run that has not panicked")
}

impl Rounds {
    fn note(&mut self, topology: Topology, fault: Fault, outcome: &Outcome) {
        let at = self.started.elapsed().as_secs();
        let Outcome { grants, grants_of_old, grants_of_new, put_off, .. } = outcome;
        println!(
            "{at:4} s {topology}, {fault}: {grants} grants, {grants_of_old} by the old master after the fault, {grants_of_new} \
             by the new one, promoted after {:.1} s, {put_off} times TRYAGAIN, none granted for {:.1} s, {} overlaps",
            outcome.until_promotion.as_secs_f64(),
            outcome.gap.as_secs_f64(),
            outcome.overlaps.len()
        );
        if self.with_period {
            outcome.overlaps.iter().for_each(|overlap| print!("{overlap}"));
        }
        match &outcome.disturbance {
            Some(what) => self.repeat(topology, fault, what),
            None => self.tally.add(topology, fault, outcome),
        }
    }

    fn repeat(&mut self, topology: Topology, fault: Fault, what: &str) {
        println!("       does not count, and is repeated: {}", what.lines().next().unwrap_or_default());
        self.tally.repeated += 1;
        self.left.push((topology, fault));
        if self.tally.repeated > REPETITIONS + REPETITIONS_PER_ROUND * self.tally.rounds() {
            self.failure = Some("the machine is too busy for this".to_owned());
        }
    }
}

fn verdict(rounds: &Rounds, topologies: &[Topology]) -> Result<(), String> {
    if let Some(failure) = &rounds.failure {
        return Err(failure.clone());
    }
    for &topology in topologies {
        match (rounds.with_period, rounds.tally.with_overlaps(topology)) {
            (true, 0) | (false, 1..) => {}
            (true, count) => return Err(format!("{topology}: two held a lock at once in {count} rounds")),
            (false, 0) => return Err(format!("{topology}: no overlap was found, so that none is found shows nothing")),
        }
    }
    println!("Held: {}", if rounds.with_period { "no overlaps" } else { "overlaps, as there is no period" });
    Ok(())
}
