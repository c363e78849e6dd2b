//! Counts how many entries are touched, and how many tasks are done in a row, for tests of how long the server is held up at a
//! stretch. Nothing of it is in the module.

#[cfg(feature = "simulated")]
use std::cell::Cell;

#[cfg(feature = "simulated")]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
    static LONGEST: Cell<usize> = const { Cell::new(0) };
}

/// Counts one entry.
#[inline(always)]
pub fn count() {
    #[cfg(feature = "simulated")]
    STEPS.set(STEPS.get().saturating_add(1));
}

/// Returns how many entries this thread has touched since it was last asked.
#[cfg(feature = "simulated")]
pub fn take() -> usize {
    STEPS.take()
}

/// Notes how many tasks of the background work were done in a row.
#[inline(always)]
pub fn note_batch(_tasks: usize) {
    #[cfg(feature = "simulated")]
    LONGEST.set(LONGEST.get().max(_tasks));
}

/// Returns the most tasks that were done in a row on this thread since it was last asked.
#[cfg(feature = "simulated")]
pub fn take_longest_batch() -> usize {
    LONGEST.take()
}

#[cfg(all(test, feature = "simulated"))]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted_since_last_take() {
        take();
        (0..3).for_each(|_| count());
        assert_eq!([take(), take()], [3, 0]);
    }

    #[test]
    fn longest_batch_counts() {
        take_longest_batch();
        [2, 3, 1].into_iter().for_each(note_batch);
        assert_eq!([take_longest_batch(), take_longest_batch()], [3, 0]);
    }
}
