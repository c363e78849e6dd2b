//! A map from names to values, which grows in small steps.

use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use super::incremental_table::IncrementalTable;

/// Values of type `V`, each with a name of its own.
pub struct NameMap<V> {
    table: IncrementalTable<(Rc<[u8]>, V)>,
    /// The hasher. Its key is random because clients choose the names. It is created with the first entry, because a constant
    /// cannot have one.
    hasher: Option<RandomState>,
}

impl<V> NameMap<V> {
    pub const fn new() -> Self {
        Self { table: IncrementalTable::new(), hasher: None }
    }

    /// Returns the number of names.
    #[cfg(any(test, feature = "simulated"))]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the stored name and its value, if there is one.
    pub fn get_key_value(&self, name: &[u8]) -> Option<(&Rc<[u8]>, &V)> {
        let hash = self.hasher.as_ref()?.hash_one(name);
        self.table.find(hash, |(other, _)| **other == *name).map(|(name, value)| (name, value))
    }

    /// Returns the value of a name, if it has one.
    pub fn get(&self, name: &[u8]) -> Option<&V> {
        self.get_key_value(name).map(|(_, value)| value)
    }

    /// Returns the value of a name for modification, if it has one.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut V> {
        let hash = self.hasher.as_ref()?.hash_one(name);
        self.table.find_mut(hash, |(other, _)| **other == *name).map(|(_, value)| value)
    }

    /// Sets the value of a name. Returns its previous value.
    pub fn insert(&mut self, name: Rc<[u8]>, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&name) {
            return Some(std::mem::replace(known, value));
        }
        let hasher = self.hasher.get_or_insert_default();
        let hash = hasher.hash_one(&*name);
        self.table.insert(hash, (name, value), |(name, _)| hasher.hash_one(&**name));
        None
    }

    /// Removes a name and returns its value, if it has one.
    pub fn remove(&mut self, name: &[u8]) -> Option<V> {
        let hash = self.hasher.as_ref()?.hash_one(name);
        self.table.remove(hash, |(other, _)| **other == *name).map(|(_, value)| value)
    }

    /// Returns the values.
    #[cfg(any(test, feature = "simulated"))]
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.table.iter().map(|(_, value)| value)
    }

    /// Returns all values and drops the map.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.table.into_entries().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_its_latest_value_until_removed() {
        let mut map = NameMap::new();
        assert!(map.get(b"door").is_none() && map.get_mut(b"door").is_none() && map.remove(b"door").is_none());
        assert_eq!(map.insert(Rc::from(*b"door"), 1), None);
        assert_eq!(map.insert(Rc::from(*b"gate"), 2), None);
        assert_eq!(map.insert(Rc::from(*b"door"), 3), Some(1));
        map.get_mut(b"gate").into_iter().for_each(|value| *value += 2);
        assert_eq!((map.get(b"door"), map.get(b"gate"), map.len()), (Some(&3), Some(&4), 2));
        assert_eq!(map.values().sum::<i32>(), 7);
        assert_eq!(map.remove(b"door"), Some(3));
        assert_eq!((map.remove(b"door"), map.is_empty()), (None, false));
        assert_eq!(map.into_values().collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn stored_name_is_the_first_one() {
        let (mut map, [first, second]) = (NameMap::new(), [Rc::from(*b"door"), Rc::from(*b"door")]);
        map.insert(Rc::clone(&first), 1);
        map.insert(second, 2);
        assert!(map.get_key_value(b"door").is_some_and(|(name, &value)| Rc::ptr_eq(name, &first) && value == 2));
    }
}
