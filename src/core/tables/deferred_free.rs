//! Frees large tables in small steps.
//!
//! Freeing a table with 100,000 entries takes as long as a thousand commands, and the server serves no client in that time.

use std::collections::VecDeque;

use crate::core::steps;

/// Tables that are no longer used.
pub struct DeferredFree(VecDeque<Box<dyn Iterator<Item = ()>>>);

impl DeferredFree {
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Adds the entries of a table, which are dropped one by one.
    pub fn add<T: 'static>(&mut self, entries: impl IntoIterator<Item = T> + 'static) {
        self.0.push_back(Box::new(entries.into_iter().map(drop)));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops one entry, or one empty table. Returns false if everything is freed.
    pub fn free_one(&mut self) -> bool {
        let Some(table) = self.0.front_mut() else { return false };
        steps::count();
        if table.next().is_none() {
            self.0.pop_front();
        }
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn entries_of_tables_are_dropped_one_by_one() {
        let entry = Rc::new(());
        let mut deferred_free = DeferredFree::new();
        assert!(!deferred_free.free_one());
        deferred_free.add(vec![Rc::clone(&entry), Rc::clone(&entry)]);
        deferred_free.add([Rc::clone(&entry)]);
        assert!(!deferred_free.is_empty());
        let left = |deferred_free: &mut DeferredFree| {
            assert!(deferred_free.free_one());
            Rc::strong_count(&entry) - 1
        };
        assert_eq!([(); 5].map(|()| left(&mut deferred_free)), [2, 1, 1, 0, 0]);
        assert!(deferred_free.is_empty() && !deferred_free.free_one());
    }
}
