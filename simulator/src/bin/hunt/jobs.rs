//! Hunts that run at the same time, as many as there are cores.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::outcome::Outcome;

type Job = Box<dyn FnOnce() -> Outcome + Send>;

/// A queue of hunts.
pub struct Jobs(Sender<Job>);

impl Jobs {
    /// Runs the hunts that `body` adds, in the order in which it adds them. Returns their outcomes, and the result of
    /// `body`. Shows each outcome when its hunt ends.
    pub fn run<R>(body: impl FnOnce(&Self) -> R) -> (Vec<Outcome>, R) {
        let (sender, receiver) = mpsc::channel();
        let receiver = Mutex::new(receiver);
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&receiver))).collect();
            let jobs = Self(sender);
            let result = body(&jobs);
            drop(jobs);
            let outcomes = workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect();
            (outcomes, result)
        })
    }

    /// Adds a hunt.
    pub fn add(&self, job: impl FnOnce() -> Outcome + Send + 'static) {
        // The workers end after this queue.
        _ = self.0.send(Box::new(job));
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) -> Vec<Outcome> {
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    let mut outcomes = Vec::new();
    while let Some(job) = next() {
        let outcome = job();
        println!("{outcome}");
        outcomes.push(outcome);
    }
    outcomes
}
