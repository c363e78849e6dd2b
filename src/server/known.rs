//! What is known of the value of an open key, so that it is not looked up again.
//!
//! A look at an end of a Sorted Set costs the server as much as a write: it begins a range, and creates a string for the
//! member that it finds there. The expiry time is in a table of its own. So an open key keeps what it has seen, and what
//! its own writes leave of that.

use std::cell::Cell;

use super::UnixMs;

/// What is known of the value of an open key.
#[derive(Default)]
pub(super) struct Known {
    /// The lowest score of a Sorted Set.
    pub(super) lowest: Cell<Option<f64>>,
    /// The highest score of a Sorted Set.
    pub(super) highest: Cell<Option<f64>>,
    /// The expiry time, or that there is none.
    pub(super) expiry: Cell<Option<Option<UnixMs>>>,
}

impl Known {
    /// Another value may be there now.
    pub(super) fn forget(&self) {
        self.set_ends(None, None);
        self.expiry.set(None);
    }

    /// The key was empty, and is a Sorted Set with one member.
    pub(super) fn created(&self, score: f64) {
        self.only(score);
        self.expiry.set(Some(None));
    }

    /// A score is the only one of a Sorted Set.
    pub(super) fn only(&self, score: f64) {
        self.set_ends(Some(score), Some(score));
    }

    /// A Sorted Set has one more member.
    pub(super) fn added(&self, score: f64) {
        let (lowest, highest) = (self.lowest.get(), self.highest.get());
        self.set_ends(lowest.map(|lowest| lowest.min(score)), highest.map(|highest| highest.max(score)));
    }

    /// A member may have left the ends of a Sorted Set.
    pub(super) fn moved(&self) {
        self.set_ends(None, None);
    }

    /// A member of a Sorted Set is gone. Others may have its score.
    pub(super) fn removed(&self, score: f64) {
        let remaining = |end: &Cell<Option<f64>>| end.get().filter(|&end| end != score);
        self.set_ends(remaining(&self.lowest), remaining(&self.highest));
    }

    fn set_ends(&self, lowest: Option<f64>, highest: Option<f64>) {
        self.lowest.set(lowest);
        self.highest.set(highest);
    }
}
