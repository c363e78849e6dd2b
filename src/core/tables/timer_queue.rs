//! A timer queue: entries ordered by time.

use std::collections::BTreeSet;

use crate::core::{UnixMs, check};

/// The time of an entry that is in no queue. It takes half the memory of an `Option` in the entries that store it.
pub const NEVER: UnixMs = UnixMs::MAX;

/// Entries of type `T`, each with at most one time. All operations are O(log n).
///
/// An entry is found by its time, so the caller stores the time.
///
/// When many are due, every other turn goes to the newest. So a crowd that is due at one time delays no entry that comes later, and
/// the crowd has the other turns.
pub struct TimerQueue<T> {
    entries: BTreeSet<(UnixMs, T)>,
    /// Whether the next turn is that of the newest entry.
    is_turn_of_newest: bool,
}

/// An entry of a [`TimerQueue`].
pub trait Entry: Copy + Ord {
    /// An entry that is not after any other.
    const LEAST: Self;
}

impl<T: Entry> TimerQueue<T> {
    pub const fn new() -> Self {
        Self { entries: BTreeSet::new(), is_turn_of_newest: false }
    }

    /// Moves `entry` from the time `from` to the time `to`. [`NEVER`] means that it is not in the queue.
    pub fn reschedule(&mut self, entry: T, from: UnixMs, to: UnixMs) {
        if from == to {
            return;
        }
        if from != NEVER {
            check(self.entries.remove(&(from, entry)), "an entry is not in the timer queue at its stored time");
        }
        if to != NEVER {
            check(self.entries.insert((to, entry)), "an entry is in the timer queue already");
        }
    }

    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    pub fn earliest(&self) -> Option<UnixMs> {
        self.entries.first().map(|&(time, _)| time)
    }

    pub fn first(&self) -> Option<T> {
        self.entries.first().map(|&(_, entry)| entry)
    }

    /// Returns the earliest entry, if its time is not after `now`.
    pub fn first_due(&self, now: UnixMs) -> Option<T> {
        self.entries.first().filter(|&&(time, _)| time <= now).map(|&(_, entry)| entry)
    }

    /// Returns the entry whose turn it is among those that are due at `now`: the earliest or the newest.
    pub fn turn(&mut self, now: UnixMs) -> Option<T> {
        let earliest = self.first_due(now)?;
        self.is_turn_of_newest = !self.is_turn_of_newest;
        if self.is_turn_of_newest {
            return Some(earliest); // The newest has the next turn.
        }
        self.entries.range(..(now.saturating_add(1), T::LEAST)).next_back().map(|&(_, entry)| entry)
    }

    #[cfg(test)]
    pub fn has(&self, entry: T, time: UnixMs) -> bool {
        self.entries.contains(&(time, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Entry for u32 {
        const LEAST: Self = Self::MIN;
    }

    /// Takes the turns of all entries that are due at `now`.
    fn turns(queue: &mut TimerQueue<u32>, times: &[UnixMs], now: UnixMs) -> Vec<u32> {
        std::iter::from_fn(|| {
            let entry = queue.turn(now)?;
            queue.reschedule(entry, times[entry as usize], NEVER);
            Some(entry)
        })
        .collect()
    }

    #[test]
    fn earliest_and_newest_take_turns() {
        let (mut queue, times) = (TimerQueue::new(), [5, 5, 5, 5, 7, 9]);
        for (entry, &time) in (0..).zip(&times) {
            queue.reschedule(entry, NEVER, time);
        }
        assert_eq!(turns(&mut queue, &times, 4), []);
        assert_eq!(turns(&mut queue, &times, 7), [0, 4, 1, 3, 2]);
        assert_eq!((queue.earliest(), turns(&mut queue, &times, UnixMs::MAX)), (Some(9), vec![5]));
    }

    #[test]
    fn crowd_does_not_delay_later_entry() {
        let mut queue = TimerQueue::new();
        (0..1_000).for_each(|entry| queue.reschedule(entry, NEVER, 5));
        for later in 1_000..1_100 {
            queue.reschedule(later, NEVER, 6);
            let two = [queue.turn(9), queue.turn(9)];
            assert!(two.contains(&Some(later)), "{two:?}");
            queue.reschedule(later, 6, NEVER);
        }
    }
}
