//! Which defect is chosen.

use std::cell::Cell;

use super::bugs::Bug;

thread_local! {
    static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Chooses the defect that this thread's servers have from now on, or none.
pub fn choose(bug: Option<Bug>) {
    CHOSEN.set(bug);
}

/// Returns whether this thread's servers have this defect.
pub fn is_chosen(bug: Bug) -> bool {
    CHOSEN.get() == Some(bug)
}

impl Bug {
    /// Returns the defect with this number, or with this name.
    pub fn find(number_or_name: &str) -> Option<Self> {
        let is_meant = |bug: &&Self| number_or_name == bug.name() || number_or_name.parse() == Ok(bug.number());
        Self::ALL.iter().find(is_meant).copied()
    }

    /// Returns its number, from 1.
    pub fn number(self) -> usize {
        (self as usize).saturating_add(1)
    }
}
