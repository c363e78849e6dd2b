//! Runs seeds in several threads, until one fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use simulator::step::History;
use simulator::tally::Tally;

/// The interval at which the figures are shown.
const SHOWN_EVERY: Duration = Duration::from_secs(5);

/// The failure of a seed: the reason, and the shrunk history.
pub type Failure = (String, History);

/// A search through seeds.
pub struct Search {
    next: AtomicU64,
    end: u64,
    begin: Instant,
    limit: Option<Duration>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Records the end of a thread, also if the thread panics. The scope propagates the panic.
struct Ended<'s>(&'s Search);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock(|state| state.ended += 1);
        self.0.changed.notify_all();
    }
}

#[derive(Default)]
struct State {
    tally: Tally,
    failure: Option<(u64, Failure)>,
    jobs: usize,
    ended: usize,
}

impl Search {
    /// Returns a search through `seeds` seeds, beginning with `first`. It ends after the time `limit`.
    pub fn new(first: u64, seeds: u64, limit: Option<Duration>) -> Self {
        Self {
            next: AtomicU64::new(first),
            end: first.saturating_add(seeds),
            begin: Instant::now(),
            limit,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    /// Runs the seeds in `jobs` threads, and shows the progress. Returns the first failure.
    pub fn run(
        &self,
        jobs: usize,
        run: impl Fn(u64) -> Result<Tally, Failure> + Send + Sync,
    ) -> Option<(u64, Failure)> {
        let jobs = jobs.max(1);
        self.lock(|state| state.jobs = jobs);
        thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    let _ended = Ended(self);
                    self.work(&run);
                });
            }
            self.show();
        });
        self.lock(|state| state.failure.take())
    }

    fn work(&self, run: &(impl Fn(u64) -> Result<Tally, Failure> + Send + Sync)) {
        while !self.is_over() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end {
                return;
            }
            match run(seed) {
                Ok(one) => self.lock(|state| state.tally += one),
                Err(failure) => return self.lock(|state| _ = state.failure.get_or_insert((seed, failure))),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.lock(|state| state.failure.is_some()) || self.limit.is_some_and(|limit| self.begin.elapsed() >= limit)
    }

    /// Shows the figures until all threads have ended.
    fn show(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.ended < state.jobs {
            let waited = self.changed.wait_timeout(state, SHOWN_EVERY);
            let (next, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timed_out.timed_out() {
                println!("{}", state.tally);
            }
        }
    }

    /// Returns the figures in one line, with the rate of requests.
    pub fn summary(&self) -> String {
        let seconds = self.begin.elapsed().as_secs_f64();
        self.lock(|state| {
            let rate = state.tally.requests as f64 / seconds / state.jobs.max(1) as f64;
            format!("{}; {rate:.0} requests a second and thread", state.tally)
        })
    }

    fn lock<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        body(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
