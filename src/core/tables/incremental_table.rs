//! A hash table that grows in small steps, for entries that contain their keys or refer to them.
//!
//! An ordinary hash table hashes all entries again when it is full. With 500,000, the server serves no client for over 100 ms.
//! This one consists of many small tables, and an insertion splits at most one of them (linear hashing).
//!
//! The bits of the hash from [`FIRST_BIT`] on select the small table. With n tables, the lowest k of these bits are its number,
//! where 2^k is n rounded up to a power of two. If no table has that number yet, the lowest k - 1 bits are its number:
//!
//! ```text
//! 6 tables, k = 3    table 0    1    2    3    4    5
//!                    bits  000  001  .10  .11  100  101       the next split is that of table 2: 010 and 110
//! ```

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

use crate::core::{OrBug, bug, steps};

/// The maximum average number of entries of a small table. When it is exceeded, one more table is added.
const AVERAGE: usize = 192;

/// The initial capacity of both tables of a split, which share up to twice the average.
const CAPACITY: usize = 224;

/// The first bit of the hash that selects the small table. Inside it, hashbrown uses the lowest bits and the seven highest.
const FIRST_BIT: u32 = 32;

/// Entries of type `T`, found by their keys. The table stores no keys: the caller compares them.
pub struct IncrementalTable<T> {
    /// Table 0. It is not part of `more`, so few entries take no more memory than in an ordinary table.
    first: HashTable<T>,
    more: Vec<HashTable<T>>,
    len: usize,
    /// Has a random key, because clients choose the names. Created with the first entry, because a constant cannot have one.
    hasher: Option<RandomState>,
}

impl<T> IncrementalTable<T> {
    pub const fn new() -> Self {
        Self { first: HashTable::new(), more: Vec::new(), len: 0, hasher: None }
    }

    #[cfg(any(test, feature = "simulated"))]
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flatten())
    }

    /// Returns the entry with a key, if there is one. `has_key` returns whether an entry has it.
    pub fn find(&self, key: impl Hash, has_key: impl FnMut(&T) -> bool) -> Option<&T> {
        let hash = self.hash(key)?;
        self.table(hash)?.find(hash, has_key)
    }

    /// Returns the entry with a key for modification, if there is one. Its key must stay the same.
    pub fn find_mut(&mut self, key: impl Hash, has_key: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let hash = self.hash(key)?;
        self.table_mut(self.number(hash))?.find_mut(hash, has_key)
    }

    /// Adds an entry. `hash_of` returns the hash of the key of any entry.
    pub fn insert(&mut self, entry: T, hash_of: impl Fn(&RandomState, &T) -> u64) {
        let hasher = self.hasher.get_or_insert_default().clone();
        let hash_of = |entry: &T| {
            steps::count();
            hash_of(&hasher, entry)
        };
        let hash = hash_of(&entry);
        let Some(table) = self.table_mut(self.number(hash)) else { return bug("a hash has no table") };
        table.insert_unique(hash, entry, hash_of);
        self.len = self.len.saturating_add(1);
        if self.len > self.tables().saturating_mul(AVERAGE) {
            self.split(hash_of);
        }
    }

    /// Removes and returns the entry with a key, if there is one.
    pub fn remove(&mut self, key: impl Hash, has_key: impl FnMut(&T) -> bool) -> Option<T> {
        let hash = self.hash(key)?;
        let table = self.table_mut(self.number(hash))?;
        let (removed, _) = table.find_entry(hash, has_key).ok()?.remove();
        if table.is_empty() {
            *table = HashTable::new(); // Frees the memory after a peak, table by table.
        }
        debug_assert!(self.len > 0, "an entry was not counted");
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            self.more = Vec::new();
        }
        Some(removed)
    }

    /// Returns the hash of a key, or `None` if the table is empty.
    fn hash(&self, key: impl Hash) -> Option<u64> {
        self.hasher.as_ref().filter(|_| self.len > 0).map(|hasher| hasher.hash_one(key))
    }

    /// Adds one more table, and moves to it the entries of an earlier table whose hashes now select it.
    fn split(&mut self, hash_of: impl Fn(&T) -> u64) {
        let new = self.tables();
        // The table in which the entries of the new table are found before the split.
        let previous = self.number((new as u64) << FIRST_BIT);
        debug_assert!(previous < new, "a table is split into an earlier one");
        self.more.push(HashTable::with_capacity(CAPACITY));
        let Some(table) = self.table_mut(previous) else { return bug("a table to split does not exist") };
        for entry in std::mem::replace(table, HashTable::with_capacity(CAPACITY)) {
            let hash = hash_of(&entry);
            debug_assert!([previous, new].contains(&self.number(hash)), "a split moves entries to the new table only");
            if let Some(table) = self.table_mut(self.number(hash)).or_bug("a hash has no table") {
                table.insert_unique(hash, entry, &hash_of);
            }
        }
    }

    fn tables(&self) -> usize {
        self.more.len().saturating_add(1)
    }

    fn table(&self, hash: u64) -> Option<&HashTable<T>> {
        match self.number(hash).checked_sub(1) {
            None => Some(&self.first),
            Some(index) => self.more.get(index),
        }
    }

    fn table_mut(&mut self, number: usize) -> Option<&mut HashTable<T>> {
        match number.checked_sub(1) {
            None => Some(&mut self.first),
            Some(index) => self.more.get_mut(index),
        }
    }

    fn number(&self, hash: u64) -> usize {
        let tables = self.tables();
        let mask = tables.next_power_of_two().wrapping_sub(1);
        let number = (hash >> FIRST_BIT) as usize & mask;
        if number < tables { number } else { number & (mask >> 1) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::HashMap;

    use super::*;

    fn hash_of(hasher: &RandomState, number: &usize) -> u64 {
        hasher.hash_one(number)
    }

    fn table(numbers: std::ops::Range<usize>) -> IncrementalTable<usize> {
        let mut table = IncrementalTable::new();
        numbers.for_each(|number| table.insert(number, hash_of));
        table
    }

    fn remove(table: &mut IncrementalTable<usize>, number: usize) -> Option<usize> {
        table.remove(number, |&other| other == number)
    }

    #[test]
    fn table_keeps_every_entry_as_it_grows() {
        for count in [0, 1, AVERAGE, AVERAGE + 1, 10_000] {
            let mut table = table(0..count);
            assert_eq!((table.len(), table.tables()), (count, count.div_ceil(AVERAGE).max(1)));
            let find = |number: usize| table.find(number, |&other| other == number).copied();
            assert!((0..count).all(|number| find(number) == Some(number)));
            assert_eq!(find(count), None);
            assert!((0..count).all(|number| remove(&mut table, number) == Some(number)));
            assert_eq!(table.remove(0_usize, |_| true), None);
        }
    }

    #[test]
    #[cfg(feature = "simulated")]
    fn insertion_hashes_a_bounded_number_of_entries() {
        let (mut table, mut most) = (IncrementalTable::new(), 0);
        for number in 0..100_000_usize {
            steps::take();
            table.insert(number, hash_of);
            most = most.max(steps::take());
        }
        // A table with twice the average is split, perhaps after another one has grown.
        assert!((AVERAGE..4 * AVERAGE).contains(&most), "{most}");
    }

    #[test]
    fn memory_is_freed_table_by_table() {
        let mut table = table(0..10_000);
        for number in 0..10_000_usize {
            assert!(remove(&mut table, number).is_some());
            let is_kept = |table: &HashTable<_>| table.is_empty() && table.capacity() > 0;
            assert!(![&table.first].into_iter().chain(&table.more).any(is_kept), "{number}");
        }
        assert_eq!((table.first.capacity(), table.more.capacity()), (0, 0));
    }

    /// A table of indexes into this list, found by their names.
    const NAMES: [&str; 4] = ["door", "gate", "door", "hatch"];

    fn names() -> IncrementalTable<usize> {
        let mut table = IncrementalTable::new();
        (0..NAMES.len()).for_each(|index| table.insert(index, |hasher, index| hasher.hash_one(NAMES[*index])));
        table
    }

    #[test]
    fn entry_is_found_by_key_until_removed() {
        let mut table = names();
        let find = |table: &IncrementalTable<usize>, name: &str| table.find(name, |&it| NAMES[it] == name).copied();
        assert_eq!(find(&table, "gate"), Some(1));
        assert_eq!(find(&table, "window"), None);
        assert_eq!(table.remove("gate", |&index| index == NAMES.len()), None, "another entry");
        assert_eq!(find(&table, "gate"), Some(1));
        assert_eq!(table.remove("gate", |&index| index == 1), Some(1));
        assert_eq!(find(&table, "gate"), None);
        assert_eq!(find(&table, "hatch"), Some(3));
    }

    #[derive(Clone, Debug)]
    enum Change {
        Insert(u64),
        Remove(u64),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let number = 0..1500_u64;
        let change = prop_oneof![3 => number.clone().prop_map(Change::Insert), 2 => number.prop_map(Change::Remove)];
        prop::collection::vec(change, 0..4000)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]
        /// Includes bad hashes, of which many are equal.
        #[test]
        fn table_finds_what_a_map_finds(changes in changes(), is_bad: bool) {
            let hashed = |key: &u64| if is_bad { key % 7 } else { *key };
            let (mut table, mut map) = (IncrementalTable::new(), HashMap::new());
            for (serial, change) in changes.into_iter().enumerate() {
                match change {
                    Change::Insert(key) => match table.find_mut(hashed(&key), |(other, _)| *other == key) {
                        Some((_, value)) => {
                            *value = serial;
                            map.insert(key, serial);
                        }
                        None => {
                            table.insert((key, serial), |hasher, (key, _)| hasher.hash_one(hashed(key)));
                            prop_assert!(map.insert(key, serial).is_none());
                        }
                    },
                    Change::Remove(key) => {
                        let removed = table.remove(hashed(&key), |(other, _)| *other == key);
                        prop_assert_eq!(removed.map(|(_, value)| value), map.remove(&key));
                    }
                }
                prop_assert_eq!(table.len(), map.len());
            }
            for (key, value) in &map {
                let found = table.find(hashed(key), |(other, _)| other == key).copied();
                prop_assert_eq!(found, Some((*key, *value)));
            }
            prop_assert_eq!(table.iter().copied().collect::<HashMap<_, _>>(), map);
        }
    }
}
