//! A cache of the value of an open key, which updates it on each write of its own.
//!
//! To read an end of a Sorted Set costs the server as much as a write: it begins a range, and creates a string for the member
//! that it finds there. The expiry time is in a table of its own.

use std::cell::Cell;

use crate::server::UnixMs;

/// Facts about the value of an open key. `None` is not known.
#[derive(Default)]
pub(in crate::server) struct Cache {
    /// The lowest score of a Sorted Set.
    pub(super) lowest: Cell<Option<f64>>,
    /// The highest score of a Sorted Set.
    pub(super) highest: Cell<Option<f64>>,
    /// The expiry time, or that the key has none.
    pub(super) expiry: Cell<Option<Option<UnixMs>>>,
}

impl Cache {
    /// Forgets all facts, because the key may hold another value.
    pub(in crate::server) fn clear(&self) {
        self.forget_ends();
        self.expiry.set(None);
    }

    /// Forgets the ends of a Sorted Set, because a member may have left them.
    pub(super) fn forget_ends(&self) {
        self.set_ends(None, None);
    }

    /// Records that all members of a Sorted Set have this score.
    pub(super) fn only(&self, score: f64) {
        self.set_ends(Some(score), Some(score));
    }

    /// Records that a member was added to a Sorted Set.
    pub(super) fn added(&self, score: f64) {
        let (lowest, highest) = (self.lowest.get(), self.highest.get());
        self.set_ends(lowest.map(|lowest| lowest.min(score)), highest.map(|highest| highest.max(score)));
    }

    /// Records that a member was removed from a Sorted Set. Other members may have the same score.
    pub(super) fn removed(&self, score: f64) {
        let remaining = |end: &Cell<Option<f64>>| end.get().filter(|&end| end != score);
        self.set_ends(remaining(&self.lowest), remaining(&self.highest));
    }

    fn set_ends(&self, lowest: Option<f64>, highest: Option<f64>) {
        self.lowest.set(lowest);
        self.highest.set(highest);
    }
}
