//! A hash table that grows in small steps.
//!
//! An ordinary hash table hashes all its entries again when it is full. With 500,000 entries that takes more than 100 ms, in
//! which the server serves no client. This table consists of many small tables, and an insertion splits at most one of them
//! (linear hashing).
//!
//! The bits of the hash from [`FIRST_BIT`] on select the small table. With n tables, the lowest k of these bits are its number,
//! where 2^k is n rounded up to a power of two. If no table has that number yet, the lowest k - 1 bits are its number:
//!
//! ```text
//! 6 tables, k = 3    table 0    1    2    3    4    5
//!                    bits  000  001  .10  .11  100  101       the next split is that of table 2: 010 and 110
//! ```

use hashbrown::HashTable;

use super::{OrBug, bug, steps};

/// The maximum average number of entries of a small table. When it is exceeded, one more table is added.
const AVERAGE: usize = 192;

/// The initial capacity of both tables of a split, which share up to twice the average.
const CAPACITY: usize = 224;

/// The first bit of the hash that selects the small table. Inside a small table, hashbrown uses the lowest bits and the seven
/// highest.
const FIRST_BIT: u32 = 32;

/// Entries of type `T`, found by their hashes. The table stores no hashes: the caller passes them.
pub struct IncrementalTable<T> {
    /// Table 0. It is not part of `more`, so few entries take no more memory than in an ordinary table.
    first: HashTable<T>,
    /// The tables from 1 on.
    more: Vec<HashTable<T>>,
    len: usize,
}

impl<T> IncrementalTable<T> {
    pub const fn new() -> Self {
        Self { first: HashTable::new(), more: Vec::new(), len: 0 }
    }

    /// Returns the number of entries.
    #[cfg(any(test, feature = "simulated"))]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the entries.
    #[cfg(any(test, feature = "simulated"))]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flatten())
    }

    /// Returns an entry with this hash that `is_it` accepts, if there is one.
    pub fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        self.table(hash)?.find(hash, is_it)
    }

    /// Returns an entry with this hash that `is_it` accepts, if there is one, for modification. The hash must stay the same.
    pub fn find_mut(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.table_mut(hash)?.find_mut(hash, is_it)
    }

    /// Returns the entries with this hash, and perhaps others.
    pub fn with_hash(&self, hash: u64) -> impl Iterator<Item = &T> {
        self.table(hash).into_iter().flat_map(move |table| table.iter_hash(hash))
    }

    /// Adds an entry with its hash. `hash_of` returns the hash of any entry.
    pub fn insert(&mut self, hash: u64, entry: T, hash_of: impl Fn(&T) -> u64) {
        let hash_of = |entry: &T| {
            steps::count();
            hash_of(entry)
        };
        let Some(table) = self.table_mut(hash) else { return bug("a hash has no table") };
        table.insert_unique(hash, entry, hash_of);
        self.len = self.len.saturating_add(1);
        if self.len > self.tables().saturating_mul(AVERAGE) {
            self.split(hash_of);
        }
    }

    /// Removes and returns an entry with this hash that `is_it` accepts, if there is one.
    pub fn remove(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let table = self.table_mut(hash)?;
        let (removed, _) = table.find_entry(hash, is_it).ok()?.remove();
        if table.is_empty() {
            *table = HashTable::new(); // Frees the memory after a peak, table by table.
        }
        debug_assert!(self.len > 0, "an entry was not counted");
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            *self = Self::new();
        }
        Some(removed)
    }

    /// Returns all entries and drops the table.
    pub fn into_entries(self) -> impl Iterator<Item = T> {
        self.first.into_iter().chain(self.more.into_iter().flatten())
    }

    /// Adds one more table, and moves to it the entries of an earlier table whose hashes now select it.
    fn split(&mut self, hash_of: impl Fn(&T) -> u64) {
        let new = self.tables();
        // The table in which the entries of the new table are found before the split.
        let previous = self.number((new as u64) << FIRST_BIT);
        debug_assert!(previous < new, "a table is split into an earlier one");
        self.more.push(HashTable::with_capacity(CAPACITY));
        let Some(table) = self.numbered_mut(previous) else { return bug("a table to split does not exist") };
        for entry in std::mem::replace(table, HashTable::with_capacity(CAPACITY)) {
            let hash = hash_of(&entry);
            debug_assert!([previous, new].contains(&self.number(hash)), "a split moves entries to the new table only");
            if let Some(table) = self.table_mut(hash).or_bug("a hash has no table") {
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

    fn table_mut(&mut self, hash: u64) -> Option<&mut HashTable<T>> {
        self.numbered_mut(self.number(hash))
    }

    fn numbered_mut(&mut self, number: usize) -> Option<&mut HashTable<T>> {
        match number.checked_sub(1) {
            None => Some(&mut self.first),
            Some(index) => self.more.get_mut(index),
        }
    }

    /// Returns the number of the table for a hash.
    fn number(&self, hash: u64) -> usize {
        let tables = self.tables();
        let mask = tables.next_power_of_two().wrapping_sub(1);
        let number = (hash >> FIRST_BIT) as usize & mask;
        if number < tables { number } else { number & (mask >> 1) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::{BuildHasher, RandomState};

    use proptest::prelude::*;

    use super::*;

    /// A table of numbers with their hashes.
    fn table(hasher: &RandomState, numbers: std::ops::Range<usize>) -> IncrementalTable<usize> {
        let mut table = IncrementalTable::new();
        numbers.for_each(|number| table.insert(hasher.hash_one(number), number, |number| hasher.hash_one(number)));
        table
    }

    #[test]
    fn table_keeps_every_entry_as_it_grows() {
        let hasher = RandomState::new();
        for count in [0, 1, AVERAGE, AVERAGE + 1, 10_000] {
            let mut table = table(&hasher, 0..count);
            assert_eq!((table.len(), table.tables()), (count, count.div_ceil(AVERAGE).max(1)));
            let find = |number: usize| table.find(hasher.hash_one(number), |&other| other == number).copied();
            assert!((0..count).all(|number| find(number) == Some(number)));
            assert_eq!(find(count), None);
            let removed = (0..count).map(|number| table.remove(hasher.hash_one(number), |&other| other == number));
            assert!(removed.enumerate().all(|(number, removed)| removed == Some(number)));
            assert_eq!(table.remove(hasher.hash_one(0_usize), |_| true), None);
        }
    }

    #[test]
    #[cfg(feature = "simulated")]
    fn insertion_hashes_a_bounded_number_of_entries() {
        let (hasher, mut table) = (RandomState::new(), IncrementalTable::new());
        let mut most = 0;
        for number in 0..100_000_usize {
            steps::take();
            table.insert(hasher.hash_one(number), number, |number| hasher.hash_one(number));
            most = most.max(steps::take());
        }
        // A table with twice the average is split, perhaps after another one has grown.
        assert!((AVERAGE..4 * AVERAGE).contains(&most), "{most}");
    }

    #[test]
    fn memory_is_freed_table_by_table() {
        let hasher = RandomState::new();
        let mut table = table(&hasher, 0..10_000);
        for number in 0..10_000_usize {
            assert!(table.remove(hasher.hash_one(number), |&other| other == number).is_some());
            let is_kept = |table: &HashTable<_>| table.is_empty() && table.capacity() > 0;
            assert!(![&table.first].into_iter().chain(&table.more).any(is_kept), "{number}");
        }
        assert_eq!((table.first.capacity(), table.more.capacity()), (0, 0));
    }

    #[test]
    fn dropped_table_returns_every_entry() {
        let mut entries: Vec<_> = table(&RandomState::new(), 0..1000).into_entries().collect();
        entries.sort_unstable();
        assert!(entries.into_iter().eq(0..1000));
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
            let hasher = RandomState::new();
            let hash_of = |key: &u64| hasher.hash_one(if is_bad { key % 7 } else { *key });
            let (mut table, mut map) = (IncrementalTable::new(), HashMap::new());
            for (serial, change) in changes.into_iter().enumerate() {
                match change {
                    Change::Insert(key) => match table.find_mut(hash_of(&key), |(other, _)| *other == key) {
                        Some((_, value)) => {
                            *value = serial;
                            map.insert(key, serial);
                        }
                        None => {
                            table.insert(hash_of(&key), (key, serial), |(key, _)| hash_of(key));
                            prop_assert!(map.insert(key, serial).is_none());
                        }
                    },
                    Change::Remove(key) => {
                        let removed = table.remove(hash_of(&key), |(other, _)| *other == key);
                        prop_assert_eq!(removed.map(|(_, value)| value), map.remove(&key));
                    }
                }
                prop_assert_eq!(table.len(), map.len());
            }
            for (key, value) in &map {
                prop_assert_eq!(table.find(hash_of(key), |(other, _)| other == key), Some(&(*key, *value)));
                prop_assert!(table.with_hash(hash_of(key)).any(|(other, _)| other == key));
            }
            prop_assert_eq!(table.into_entries().collect::<HashMap<_, _>>(), map);
        }
    }
}
