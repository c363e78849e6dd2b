//! A timer queue: entries ordered by time.

use std::collections::BTreeSet;

use crate::core::{UnixMs, check};

/// The time of an entry that is in no queue. It takes half the memory of an `Option` in the entries that store it.
pub const NEVER: UnixMs = UnixMs::MAX;

/// Entries of type `T`, each with at most one time. All operations are O(log n).
///
/// An entry is found by its time, so the caller stores the time.
pub struct TimerQueue<T>(BTreeSet<(UnixMs, T)>);

impl<T: Copy + Ord> TimerQueue<T> {
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    pub fn into_entries(self) -> impl Iterator<Item = T> {
        self.0.into_iter().map(|(_, entry)| entry)
    }

    /// Moves `entry` from the time `from` to the time `to`. [`NEVER`] means that it is not in the queue.
    pub fn reschedule(&mut self, entry: T, from: UnixMs, to: UnixMs) {
        if from == to {
            return;
        }
        if from != NEVER {
            check(self.0.remove(&(from, entry)), "an entry is not in the timer queue at its stored time");
        }
        if to != NEVER {
            check(self.0.insert((to, entry)), "an entry is in the timer queue already");
        }
    }

    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        self.0.len()
    }

    pub fn earliest(&self) -> Option<UnixMs> {
        self.0.first().map(|&(time, _)| time)
    }

    pub fn first(&self) -> Option<T> {
        self.0.first().map(|&(_, entry)| entry)
    }

    /// Returns the earliest entry, if its time is not after `now`.
    pub fn first_due(&self, now: UnixMs) -> Option<T> {
        self.0.first().filter(|&&(time, _)| time <= now).map(|&(_, entry)| entry)
    }

    /// Removes and returns the earliest entry, if its time is not after `now`. The caller's stored time becomes [`NEVER`].
    pub fn pop_due(&mut self, now: UnixMs) -> Option<T> {
        self.first_due(now)?;
        self.0.pop_first().map(|(_, entry)| entry)
    }
}
