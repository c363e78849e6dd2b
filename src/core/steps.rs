//! Counts how many entries are touched, for tests of how long the server is held up at a stretch. Nothing of it is in the
//! module.

#[cfg(feature = "simulated")]
use std::cell::Cell;

#[cfg(feature = "simulated")]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
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

#[cfg(all(test, feature = "simulated"))]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted_since_the_last_look() {
        take();
        (0..3).for_each(|_| count());
        assert_eq!([take(), take()], [3, 0]);
    }
}
