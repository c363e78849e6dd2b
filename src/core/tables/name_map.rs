//! A map from names to values, which grows in small steps.

use std::hash::BuildHasher;
use std::rc::Rc;

use super::incremental_table::IncrementalTable;

/// Values of type `V`, each with a name of its own.
pub struct NameMap<V>(IncrementalTable<(Rc<[u8]>, V)>);

impl<V> NameMap<V> {
    pub const fn new() -> Self {
        Self(IncrementalTable::new())
    }

    #[cfg(any(test, feature = "simulated"))]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the stored name and its value, if there is one.
    pub fn get_key_value(&self, name: &[u8]) -> Option<(&Rc<[u8]>, &V)> {
        self.0.find(name, |(other, _)| **other == *name).map(|(name, value)| (name, value))
    }

    pub fn get(&self, name: &[u8]) -> Option<&V> {
        self.get_key_value(name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut V> {
        self.0.find_mut(name, |(other, _)| **other == *name).map(|(_, value)| value)
    }

    /// Sets the value of a name. Returns its previous value.
    pub fn insert(&mut self, name: Rc<[u8]>, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&name) {
            return Some(std::mem::replace(known, value));
        }
        self.0.insert((name, value), |hasher, (name, _)| hasher.hash_one(&**name));
        None
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<V> {
        self.0.remove(name, |(other, _)| **other == *name).map(|(_, value)| value)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
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
        assert_eq!(map.values().collect::<Vec<_>>(), [&4]);
    }

    #[test]
    fn stored_name_is_the_first_one() {
        let (mut map, [first, second]) = (NameMap::new(), [Rc::from(*b"door"), Rc::from(*b"door")]);
        map.insert(Rc::clone(&first), 1);
        map.insert(second, 2);
        assert!(map.get_key_value(b"door").is_some_and(|(name, &value)| Rc::ptr_eq(name, &first) && value == 2));
    }
}
