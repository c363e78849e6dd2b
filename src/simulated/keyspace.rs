//! The keys of each database and their values.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::UnixMs;
use super::members::Members;

/// The number of databases, which is the servers' default.
const DATABASES: usize = 16;

/// A value of the keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    String(Rc<[u8]>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    SortedSet(Members),
    /// A List with this many elements, which stands for any value that is no lock.
    Other(usize),
}

/// A key that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Value,
    /// The last millisecond in which the key exists, in Unix milliseconds. `None` if the key does not expire.
    pub expiry: Option<UnixMs>,
}

impl Entry {
    /// Returns whether the key has expired at `now`. A server keeps a key through the millisecond in which it expires.
    pub fn is_over(&self, now: UnixMs) -> bool {
        self.expiry.is_some_and(|expiry| now > expiry)
    }
}

/// All databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace(Vec<BTreeMap<Rc<[u8]>, Entry>>);

impl Default for Keyspace {
    /// Returns empty databases.
    fn default() -> Self {
        Self(vec![BTreeMap::new(); DATABASES])
    }
}

impl Keyspace {
    pub fn has_db(&self, db: i32) -> bool {
        self.db(db).is_some()
    }

    pub fn get(&self, db: i32, key: &[u8]) -> Option<&Entry> {
        self.db(db)?.get(key)
    }

    /// Returns the keys of a database.
    pub fn of(&self, db: i32) -> impl Iterator<Item = (&Rc<[u8]>, &Entry)> {
        self.db(db).into_iter().flatten()
    }

    /// Returns all keys, with the numbers of their databases.
    pub fn all(&self) -> impl Iterator<Item = (i32, &Rc<[u8]>, &Entry)> {
        (0..).zip(&self.0).flat_map(|(db, keys)| keys.iter().map(move |(key, entry)| (db, key, entry)))
    }

    /// Sets or removes a key. Returns its old entry.
    pub fn set(&mut self, db: i32, key: &[u8], entry: Option<Entry>) -> Option<Entry> {
        let keys = usize::try_from(db).ok().and_then(|db| self.0.get_mut(db))?;
        match (entry, keys.get_mut(key)) {
            (Some(entry), Some(place)) => Some(std::mem::replace(place, entry)),
            (Some(entry), None) => keys.insert(key.into(), entry),
            (None, _) => keys.remove(key),
        }
    }

    /// Empties a database, or all of them.
    pub fn clear(&mut self, db: Option<i32>) {
        match db.map(usize::try_from) {
            None => self.0.iter_mut().for_each(BTreeMap::clear),
            Some(db) => _ = db.ok().and_then(|db| self.0.get_mut(db)).map(BTreeMap::clear),
        }
    }

    /// Swaps two databases that exist.
    pub fn swap(&mut self, one: i32, other: i32) {
        if let (Ok(one), Ok(other)) = (usize::try_from(one), usize::try_from(other)) {
            self.0.swap(one, other);
        }
    }

    fn db(&self, db: i32) -> Option<&BTreeMap<Rc<[u8]>, Entry>> {
        usize::try_from(db).ok().and_then(|db| self.0.get(db))
    }
}
