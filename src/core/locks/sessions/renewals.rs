//! The scheduled renewals of sessions, in classes by the length of their leases.
//!
//! The sessions of all shares of one lock may be due at the same time. Renewing thousands of them takes longer than a short lease
//! of another lock lasts, so only leases of similar length wait for each other.

use crate::core::locks::lease_class::{CLASSES, Class};
use crate::core::locks::record::HoldId;
use crate::core::tables::{NEVER, TimerQueue};
use crate::core::{OrBug, UnixMs};

/// The next renewals of sessions, in classes that take turns.
pub struct Renewals {
    classes: [TimerQueue<HoldId>; CLASSES],
    /// The class whose turn it is.
    next: usize,
}

impl Renewals {
    pub const fn new() -> Self {
        Self { classes: [const { TimerQueue::new() }; CLASSES], next: 0 }
    }

    pub fn into_entries(self) -> impl Iterator<Item = HoldId> {
        self.classes.into_iter().flat_map(TimerQueue::into_entries)
    }

    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        self.classes.iter().map(TimerQueue::entry_count).sum()
    }

    /// Moves the renewal of a session from one class and time to another. The time [`NEVER`] means that there is no renewal.
    pub fn reschedule(&mut self, id: HoldId, from: (Class, UnixMs), to: (Class, UnixMs)) {
        if from.0 != to.0 {
            self.reschedule(id, from, (from.0, NEVER));
            return self.reschedule(id, (to.0, NEVER), to);
        }
        let class = self.classes.get_mut(usize::from(to.0.0)).or_bug("a class of leases does not exist");
        class.into_iter().for_each(|class| class.reschedule(id, from.1, to.1));
    }

    pub fn earliest(&self) -> Option<UnixMs> {
        self.classes.iter().filter_map(TimerQueue::earliest).min()
    }

    /// Removes and returns a session whose renewal is due at `now`: the earliest of the class whose turn it is.
    pub fn pop_due(&mut self, now: UnixMs) -> Option<HoldId> {
        for number in (0..CLASSES).cycle().skip(self.next).take(CLASSES) {
            if let Some(id) = self.classes.get_mut(number).and_then(|class| class.pop_due(now)) {
                self.next = number.saturating_add(1);
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Lease;

    fn class_of(ms: i64) -> Class {
        Class::of(Lease::from_ms(ms).unwrap())
    }

    #[test]
    fn class_grows_with_the_lease() {
        for (ms, class) in
            [(1, 0), (399, 0), (400, 1), (1_600, 2), (6_400, 3), (25_600, 4), (102_400, 5), (i64::MAX / 2, 5)]
        {
            assert_eq!(class_of(ms), Class(class), "{ms} ms");
        }
    }

    #[test]
    fn short_lease_does_not_wait_for_many_long_ones() {
        let mut renewals = Renewals::new();
        let id = HoldId::from_bits;
        for number in 1..=100 {
            renewals.reschedule(id(number), (class_of(60_000), NEVER), (class_of(60_000), 0));
        }
        renewals.reschedule(id(200), (class_of(150), NEVER), (class_of(150), 5));
        let first_two = [(); 2].map(|()| renewals.pop_due(9));
        assert!(first_two.contains(&Some(id(200))), "{first_two:?}");
        renewals.reschedule(id(50), (class_of(60_000), 0), (class_of(150), 7));
        assert_eq!((renewals.entry_count(), renewals.earliest()), (99, Some(0)));
        assert_eq!(renewals.into_entries().count(), 99);
    }
}
