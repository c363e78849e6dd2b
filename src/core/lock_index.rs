//! What is known of some locks, by database and key.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::Id;

/// Handles by lock. One map a database, so that a look-up needs no copy of the key; a database without entries has no
/// map.
pub struct LockIndex<T>(BTreeMap<i32, HashMap<Rc<[u8]>, Id<T>>>);

impl<T> LockIndex<T> {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn get(&self, db: i32, key: &[u8]) -> Option<Id<T>> {
        self.0.get(&db)?.get(key).copied()
    }

    pub fn insert(&mut self, db: i32, key: Rc<[u8]>, id: Id<T>) {
        self.0.entry(db).or_default().insert(key, id);
    }

    pub fn remove(&mut self, db: i32, key: &[u8]) {
        let Some(keys) = self.0.get_mut(&db) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.0.remove(&db);
        }
    }
}
