//! What falls due when: a set of entries ordered by time.

use std::collections::BTreeSet;

use super::UnixMs;

/// The time of what has none: half the room of an `Option` in the entries that remember it.
pub const NEVER: UnixMs = UnixMs::MAX;

/// Entries of type `T`, each at one time at the most, found by `(time, entry)`. All operations are O(log n).
pub struct TimerQueue<T>(BTreeSet<(UnixMs, T)>);

impl<T: Copy + Ord> TimerQueue<T> {
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Moves `entry` from the time it had to the time it shall have. At [`NEVER`] it takes no waiting.
    pub fn reschedule(&mut self, entry: T, from: UnixMs, to: UnixMs) {
        if from == to {
            return;
        }
        if from != NEVER {
            self.0.remove(&(from, entry));
        }
        if to != NEVER {
            self.0.insert((to, entry));
        }
    }

    /// The time of the earliest entry.
    pub fn earliest(&self) -> Option<UnixMs> {
        self.0.first().map(|&(time, _)| time)
    }

    /// The earliest entry.
    pub fn first(&self) -> Option<T> {
        self.0.first().map(|&(_, entry)| entry)
    }

    /// Takes the earliest entry out, if its time has come.
    pub fn pop_due(&mut self, now: UnixMs) -> Option<T> {
        let &(time, _) = self.0.first()?;
        if time > now {
            return None;
        }
        self.0.pop_first().map(|(_, entry)| entry)
    }
}
