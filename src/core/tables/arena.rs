//! A generational arena: a slab whose handles never refer to a later entry.
//!
//! The server keeps handles as integers. Each has the serial number of its entry, so a handle that outlives it finds nothing.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;

use super::slab::{Slab, Slot};
use super::timer_queue::Entry;
use crate::core::OrBug;

/// The position of a scan of an [`Arena`]. An entry that exists during the whole scan is found exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(Option<Slot>);

/// A handle to an entry of an [`Arena<T>`]. As an integer it is never 0.
///
/// A stale handle could find another entry only after 2^32 further insertions.
pub struct Id<T> {
    slot: Slot,
    serial: u32,
    entry: PhantomData<fn() -> T>,
}

/// Entries of type `T`, found by [`Id`]. Insertion, look-up and removal are O(1).
pub struct Arena<T> {
    entries: Slab<Numbered<T>>,
    last_serial: u32,
}

struct Numbered<T> {
    serial: u32,
    entry: T,
}

impl Cursor {
    /// A cursor behind the last entry.
    pub const END: Self = Self(None);

    /// Returns a cursor at the first entry.
    pub fn start() -> Self {
        Self(Some(Slot::MIN))
    }

    pub fn has_more(self) -> bool {
        self.0.is_some()
    }
}

impl<T> Id<T> {
    /// Returns the handle as an integer.
    pub fn to_bits(self) -> u64 {
        (u64::from(self.serial) << 32) | u64::from(self.slot.0.get())
    }

    /// Returns the handle for an integer of [`Id::to_bits`]. Any other integer gives a handle that finds nothing or some entry.
    pub fn from_bits(bits: u64) -> Self {
        let [slot, serial] = [bits as u32, (bits >> 32) as u32];
        Self { slot: NonZeroU32::new(slot).map_or(Slot::MIN, Slot), serial, entry: PhantomData }
    }

    /// Returns whether its entry was added after the entry of `other`, at most 2^31 entries later.
    pub fn is_later_than(self, other: Self) -> bool {
        (1..1 << 31).contains(&self.serial.wrapping_sub(other.serial))
    }

    /// Returns the slot of the entry. It is unique among the handles whose entries exist.
    pub(in crate::core) fn slot(self) -> Slot {
        self.slot
    }
}

impl<T> Arena<T> {
    pub const fn new() -> Self {
        Self { entries: Slab::new(), last_serial: 0 }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the handle of the entry that was added last, which may not exist any more.
    pub fn latest(&self) -> Option<Id<T>> {
        (!self.is_empty()).then_some(Id { slot: Slot::MIN, serial: self.last_serial, entry: PhantomData })
    }

    pub fn get(&self, id: Id<T>) -> Option<&T> {
        let found = self.entries.get(id.slot)?;
        (found.serial == id.serial).then_some(&found.entry)
    }

    pub(in crate::core) fn at(&self, slot: Slot) -> Option<&T> {
        self.entries.get(slot).map(|found| &found.entry)
    }

    pub(in crate::core) fn id_at(&self, slot: Slot) -> Option<Id<T>> {
        self.entries.get(slot).map(|found| Id { slot, serial: found.serial, entry: PhantomData })
    }

    pub fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        let found = self.entries.get_mut(id.slot)?;
        (found.serial == id.serial).then_some(&mut found.entry)
    }

    /// Adds an entry. Returns `None` if there are 2^32 - 1 entries already. The limits on waiters and sessions prevent that.
    pub fn insert(&mut self, entry: T) -> Option<Id<T>> {
        let serial = self.last_serial.wrapping_add(1);
        let slot = self.entries.insert(Numbered { serial, entry })?;
        self.last_serial = serial;
        Some(Id { slot, serial, entry: PhantomData })
    }

    /// Returns the entry at the cursor and advances the cursor. Returns `None` at the end.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Id<T>> {
        let found = cursor.0.and_then(|from| self.entries.first_from(from));
        cursor.0 = found.and_then(|(slot, _)| slot.next());
        found.map(|(slot, numbered)| Id { slot, serial: numbered.serial, entry: PhantomData })
    }

    pub fn remove(&mut self, id: Id<T>) -> Option<T> {
        self.get(id)?;
        self.entries.remove(id.slot).or_bug("an entry that was found cannot be removed").map(|found| found.entry)
    }
}

impl<T> Entry for Id<T> {
    const LEAST: Self = Self { slot: Slot::MIN, serial: 0, entry: PhantomData };
}

// A derive would require these traits of T, but a handle contains no T.
impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}
impl<T> Eq for Id<T> {}
impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.to_bits().cmp(&other.to_bits())
    }
}
impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_bits().hash(state);
    }
}
impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}v{}", self.slot.0, self.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_finds_its_entry_until_removed() {
        let mut arena = Arena::new();
        let id = arena.insert("a").unwrap();
        assert_eq!(arena.get(id), Some(&"a"));
        assert_eq!(arena.remove(id), Some("a"));
        assert_eq!(arena.get(id), None);
        assert_eq!(arena.remove(id), None);
        assert!(arena.is_empty());
    }

    #[test]
    fn stale_handle_does_not_find_next_entry() {
        let mut arena = Arena::new();
        let old = arena.insert(1).unwrap();
        arena.remove(old);
        let new = arena.insert(2).unwrap();
        assert_eq!(old.slot(), new.slot());
        assert_eq!(arena.get(old), None);
        assert_eq!(arena.get(new), Some(&2));
    }

    #[test]
    fn handle_survives_conversion_to_integer() {
        let mut arena = Arena::new();
        let first = arena.insert(1).unwrap();
        arena.remove(first);
        let id = arena.insert(2).unwrap();
        assert_eq!(Id::from_bits(id.to_bits()), id);
        assert_eq!(arena.get(Id::from_bits(u64::MAX)), None);
        assert_eq!(arena.get(Id::from_bits(0)), None);
    }

    #[test]
    fn handle_order_survives_serial_overflow() {
        let mut arena = Arena { entries: Slab::new(), last_serial: u32::MAX - 2 };
        assert_eq!(arena.latest(), None);
        let ids: Vec<_> = (0..4).map(|n| arena.insert(n).unwrap()).collect();
        for (at, &id) in ids.iter().enumerate() {
            let is_later = |&other: &Id<_>| id.is_later_than(other);
            assert!(ids[..at].iter().all(is_later) && !ids[at..].iter().any(is_later), "{ids:?}");
        }
        let latest = arena.latest().unwrap();
        assert!(latest.is_later_than(ids[2]) && !ids[3].is_later_than(latest));
    }

    #[test]
    fn scan_finds_lasting_entries_despite_removals() {
        let mut arena = Arena::new();
        let ids: Vec<_> = (0..100).map(|n| arena.insert(n).unwrap()).collect();
        let (mut cursor, mut found) = (Cursor::start(), Vec::new());
        while let Some(id) = arena.next(&mut cursor) {
            found.push(id);
            arena.remove(ids[100 - found.len()]);
        }
        assert_eq!(found, ids[..50]);
        assert!(!cursor.has_more() && arena.next(&mut cursor).is_none());
    }

    #[test]
    fn old_handles_stay_stale_after_peak() {
        let mut arena = Arena::new();
        let rush: Vec<_> = (0..10_000).map(|n| arena.insert(n).unwrap()).collect();
        for &id in &rush {
            arena.remove(id);
        }
        let again: Vec<_> = (0..10_000).map(|n| arena.insert(n).unwrap()).collect();
        assert!(rush.iter().all(|&id| arena.get(id).is_none()));
        assert!(again.iter().all(|&id| arena.get(id).is_some()));
    }
}
