//! A hash table of handles.

use std::hash::{BuildHasher, Hash, RandomState};

use super::OrBug;
use super::incremental_table::IncrementalTable;

/// Handles of type `H`, found by keys. The table stores no keys: the caller reads them from the entries of the handles.
pub struct HandleTable<H> {
    table: IncrementalTable<H>,
    /// The hasher. Its key is random because clients choose the hashed names. It is created with the first handle, because a
    /// constant cannot have one.
    hasher: Option<RandomState>,
}

impl<H: Copy + PartialEq> HandleTable<H> {
    pub const fn new() -> Self {
        Self { table: IncrementalTable::new(), hasher: None }
    }

    /// Returns the number of handles.
    #[cfg(any(test, feature = "simulated"))]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the handle with a key, if there is one. `has_key` returns whether the entry of a handle has it.
    pub fn find(&self, key: impl Hash, has_key: impl Fn(H) -> bool) -> Option<H> {
        let hash = self.hasher.as_ref()?.hash_one(key);
        self.table.find(hash, |&handle| has_key(handle)).copied()
    }

    /// Returns the first of several handles with a key. `order` returns the position of a handle, or `None` if its entry does not
    /// have the key.
    pub fn find_first<O: Ord>(&self, key: impl Hash, order: impl Fn(H) -> Option<O>) -> Option<H> {
        let hash = self.hasher.as_ref()?.hash_one(key);
        let found = self.table.with_hash(hash).filter_map(|&handle| Some((order(handle)?, handle)));
        found.min_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, handle)| handle)
    }

    /// Adds a handle whose key is not in the table. `key_of` returns the key of a handle in the table.
    pub fn insert<K: Hash>(&mut self, key: K, handle: H, key_of: impl Fn(H) -> Option<K>) {
        let hasher = self.hasher.get_or_insert_default();
        let key_of = |handle| key_of(handle).or_bug("a handle in a table has no entry");
        let hash = |&handle: &H| key_of(handle).map_or(0, |key| hasher.hash_one(key));
        self.table.insert(hasher.hash_one(key), handle, hash);
    }

    /// Removes a handle with its key. Returns whether it was in the table.
    pub fn remove(&mut self, key: impl Hash, handle: H) -> bool {
        let hash = self.hasher.as_ref().map(|hasher| hasher.hash_one(key));
        hash.and_then(|hash| self.table.remove(hash, |&other| other == handle)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["door", "gate", "door", "hatch"];

    fn table() -> HandleTable<usize> {
        let mut table = HandleTable::new();
        (0..NAMES.len()).for_each(|handle| table.insert(NAMES[handle], handle, |handle| Some(NAMES[handle])));
        table
    }

    #[test]
    fn handle_is_found_by_key_until_removed() {
        let mut table = table();
        let find = |table: &HandleTable<usize>, name: &str| table.find(name, |handle| NAMES[handle] == name);
        assert_eq!(find(&table, "gate"), Some(1));
        assert_eq!(find(&table, "window"), None);
        assert!(!table.remove("gate", NAMES.len()), "another handle");
        assert_eq!(find(&table, "gate"), Some(1));
        assert!(table.remove("gate", 1));
        assert_eq!(find(&table, "gate"), None);
        assert_eq!(find(&table, "hatch"), Some(3));
    }

    #[test]
    fn first_of_several_handles_is_found() {
        let table = table();
        let last_first = |handle| (NAMES[handle] == "door").then_some(NAMES.len() - handle);
        assert_eq!(table.find_first("door", last_first), Some(2));
        // The table compares a part of the hashes only, so the caller compares the keys.
        assert_eq!(table.find_first("window", |handle| (NAMES[handle] == "window").then_some(handle)), None);
    }
}
