//! Counts the events of a run.

use std::fmt;
use std::ops::AddAssign;

/// The figures of one history, or of many.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub histories: u64,
    pub requests: u64,
    pub grants: u64,
    /// The requests that took the place of an earlier one.
    pub replaced: u64,
    pub iterations: u64,
    pub external_commands: u64,
    pub closed: u64,
    /// The sum, over all requests, of the waiters in the queue when the request was sent.
    pub queued: u64,
    pub faults: Faults,
}

/// The faults of servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub stalls: u64,
    pub pauses: u64,
    pub fences: u64,
    pub failovers: u64,
    pub restarts: u64,
    pub clock_steps: u64,
    pub slots: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.histories += other.histories;
        self.requests += other.requests;
        self.grants += other.grants;
        self.replaced += other.replaced;
        self.iterations += other.iterations;
        self.external_commands += other.external_commands;
        self.closed += other.closed;
        self.queued += other.queued;
        self.faults.stalls += other.faults.stalls;
        self.faults.pauses += other.faults.pauses;
        self.faults.fences += other.faults.fences;
        self.faults.failovers += other.faults.failovers;
        self.faults.restarts += other.faults.restarts;
        self.faults.clock_steps += other.faults.clock_steps;
        self.faults.slots += other.faults.slots;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { stalls, pauses, fences, failovers, restarts, clock_steps, slots } = self.faults;
        let mean_queue = self.queued as f64 / self.requests.max(1) as f64;
        write!(
            f,
            "{} seeds, {} requests (mean queue {mean_queue:.1}), {} hand-overs, {} replaced, {} iterations; faults: {} external \
             commands, {} closed connections, {stalls} stalls, {pauses} pauses, {fences} write fences, {failovers} failovers, {restarts} \
             restarts, {clock_steps} clock steps, {slots} slot moves",
            self.histories,
            self.requests,
            self.grants,
            self.replaced,
            self.iterations,
            self.external_commands,
            self.closed
        )
    }
}
