//! The budget of one step of work: how much it may still do, so that no lock delays the others.

/// What one command, or one run of the background work, has done and may still do.
#[derive(Debug)]
pub struct Budget {
    spent: usize,
    had_batch: bool,
}

impl Budget {
    pub const fn new() -> Self {
        Self { spent: 0, had_batch: false }
    }

    /// Records that this number of entries was processed: requests that were granted a lock or had no subscriber, and shares that
    /// were removed or returned.
    pub fn spend(&mut self, entries: usize) {
        self.spent = self.spent.saturating_add(entries);
    }

    /// Returns the number of entries since the last call.
    pub fn take_spent(&mut self) -> usize {
        std::mem::take(&mut self.spent)
    }

    /// Records that a lock has had a whole batch, and has more work.
    pub fn end_batch(&mut self) {
        self.had_batch = true;
    }

    /// Returns whether a lock has had a whole batch. Then the server serves its clients, and other locks have their turn, before
    /// another batch.
    pub fn had_batch(&self) -> bool {
        self.had_batch
    }
}
