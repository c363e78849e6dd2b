//! Queues by database and key.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::QueueId;

/// One map a database, so that a look-up needs no copy of the key and a database can be walked by itself.
/// A database without queues has no map.
pub struct QueueIndex(BTreeMap<i32, HashMap<Rc<[u8]>, QueueId>>);

impl QueueIndex {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn get(&self, db: i32, key: &[u8]) -> Option<QueueId> {
        self.0.get(&db)?.get(key).copied()
    }

    pub fn insert(&mut self, db: i32, key: Rc<[u8]>, queue: QueueId) {
        self.0.entry(db).or_default().insert(key, queue);
    }

    pub fn remove(&mut self, db: i32, key: &[u8]) {
        let Some(keys) = self.0.get_mut(&db) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.0.remove(&db);
        }
    }

    /// The queues of one database, or of all of them.
    pub fn all(&self, db: Option<i32>) -> Vec<QueueId> {
        let maps = self.0.iter().filter(|(number, _)| db.is_none_or(|db| db == **number));
        maps.flat_map(|(_, keys)| keys.values().copied()).collect()
    }
}
