//! Maps locks, by database and key, to entries of an arena.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::Id;

/// A map from locks to handles.
///
/// There is one map for each database that has entries, so that a look-up does not copy the key.
pub struct LockIndex<T>(BTreeMap<i32, HashMap<Rc<[u8]>, Id<T>>>);

impl<T> LockIndex<T> {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Returns the handle of a lock, if it has one.
    pub fn get(&self, db: i32, key: &[u8]) -> Option<Id<T>> {
        self.0.get(&db)?.get(key).copied()
    }

    /// Returns the number of locks.
    #[cfg(feature = "simulated")]
    pub fn lock_count(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }

    /// Sets the handle of a lock.
    pub fn insert(&mut self, db: i32, key: Rc<[u8]>, id: Id<T>) {
        self.0.entry(db).or_default().insert(key, id);
    }

    /// Removes the handle of a lock.
    pub fn remove(&mut self, db: i32, key: &[u8]) {
        let Some(keys) = self.0.get_mut(&db) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.0.remove(&db);
        }
    }
}
