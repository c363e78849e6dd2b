//! Counts the entries that are touched and the tasks of a batch, for tests. The module does not contain it.

#[cfg(feature = "simulated")]
use std::cell::Cell;

#[cfg(feature = "simulated")]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
    static LONGEST: Cell<usize> = const { Cell::new(0) };
}

#[inline(always)]
pub fn count() {
    #[cfg(feature = "simulated")]
    STEPS.set(STEPS.get().saturating_add(1));
}

/// Returns the number of entries that this thread has touched since the last call.
#[cfg(feature = "simulated")]
pub fn take() -> usize {
    STEPS.take()
}

/// Records the number of tasks of one batch of background work.
#[inline(always)]
pub fn note_batch(_tasks: usize) {
    #[cfg(feature = "simulated")]
    LONGEST.set(LONGEST.get().max(_tasks));
}

/// Returns the number of tasks of the longest batch on this thread since the last call.
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
