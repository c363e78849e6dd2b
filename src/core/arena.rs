//! A slab whose handles go stale instead of pointing at somebody else.
//!
//! Handles travel through the server as plain integers and come back at times the server chooses. Each slot counts how
//! often it was given back, and a handle remembers that count: one that outlived its entry finds nothing.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// Handle to an entry of an [`Arena<T>`]. As an integer it is never 0, because generations begin at 1.
pub struct Id<T> {
    index: u32,
    generation: u32,
    entry: PhantomData<fn() -> T>,
}

/// Entries of type `T` by [`Id`]; insert, look-up and removal are O(1).
pub struct Arena<T> {
    slots: Vec<Slot<T>>,
    free: Option<u32>,
    len: usize,
    /// The generation that a new slot begins with: higher than that of any handle to a slot that was dropped.
    first_generation: u32,
}

struct Slot<T> {
    generation: u32,
    content: Content<T>,
}

enum Content<T> {
    Taken(T),
    /// Index of the next free slot.
    Free(Option<u32>),
}

impl<T> Id<T> {
    /// The handle as one integer.
    pub fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    /// The handle that [`Id::to_bits`] made. Any other integer gives a handle that finds nothing, or an entry of `T`.
    pub fn from_bits(bits: u64) -> Self {
        let [index, generation] = [bits as u32, (bits >> 32) as u32];
        Self { index, generation, entry: PhantomData }
    }
}

impl<T> Arena<T> {
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: None, len: 0, first_generation: 1 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, id: Id<T>) -> Option<&T> {
        match self.slots.get(id.index as usize) {
            Some(Slot { generation, content: Content::Taken(entry) }) if *generation == id.generation => Some(entry),
            _ => None,
        }
    }

    pub fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        match self.slots.get_mut(id.index as usize) {
            Some(Slot { generation, content: Content::Taken(entry) }) if *generation == id.generation => Some(entry),
            _ => None,
        }
    }

    /// Keeps `entry`. `None` when 2^32 entries are kept already; limits on waiters forbid that long before.
    pub fn insert(&mut self, entry: T) -> Option<Id<T>> {
        let index = match self.free {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).ok()?;
                self.slots.push(Slot { generation: self.first_generation, content: Content::Free(None) });
                index
            }
        };
        let slot = self.slots.get_mut(index as usize)?;
        self.free = match slot.content {
            Content::Free(next) => next,
            Content::Taken(_) => None,
        };
        slot.content = Content::Taken(entry);
        self.len = self.len.saturating_add(1);
        Some(Id { index, generation: slot.generation, entry: PhantomData })
    }

    pub fn remove(&mut self, id: Id<T>) -> Option<T> {
        self.get(id)?;
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        self.len = self.len.saturating_sub(1);
        let content = std::mem::replace(&mut slot.content, Content::Free(self.free));
        self.free = Some(id.index);
        if self.len == 0 {
            self.give_back_memory();
        }
        match content {
            Content::Taken(entry) => Some(entry),
            Content::Free(_) => None,
        }
    }

    /// A rush of waiters leaves nothing behind once all of them are gone. A small arena is kept as it is, so that
    /// light contention does not allocate each time.
    fn give_back_memory(&mut self) {
        const KEPT: usize = 64;
        if self.slots.len() > KEPT {
            let newest = self.slots.iter().map(|slot| slot.generation).max();
            self.first_generation = newest.unwrap_or(1);
            self.slots = Vec::new();
            self.free = None;
        }
    }
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self::new()
    }
}

// Derived, these would ask the same of T, of which a handle holds nothing.
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
        write!(f, "{}v{}", self.index, self.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_finds_its_entry_until_it_is_removed() {
        let mut arena = Arena::new();
        let id = arena.insert("a").unwrap();
        assert_eq!(arena.get(id), Some(&"a"));
        assert_eq!(arena.remove(id), Some("a"));
        assert_eq!(arena.get(id), None);
        assert_eq!(arena.remove(id), None);
        assert!(arena.is_empty());
    }

    #[test]
    fn a_stale_handle_does_not_find_the_next_tenant() {
        let mut arena = Arena::new();
        let old = arena.insert(1).unwrap();
        arena.remove(old);
        let new = arena.insert(2).unwrap();
        assert_eq!(arena.get(old), None);
        assert_eq!(arena.get(new), Some(&2));
    }

    #[test]
    fn a_handle_survives_the_trip_through_an_integer() {
        let mut arena = Arena::new();
        let first = arena.insert(1).unwrap();
        arena.remove(first);
        let id = arena.insert(2).unwrap();
        assert_eq!(Id::from_bits(id.to_bits()), id);
        assert_eq!(arena.get(Id::from_bits(u64::MAX)), None);
    }

    #[test]
    fn memory_is_given_back_after_a_rush_and_old_handles_stay_stale() {
        let mut arena = Arena::new();
        let rush: Vec<_> = (0..10_000).map(|n| arena.insert(n).unwrap()).collect();
        for &id in &rush {
            arena.remove(id);
        }
        assert!(arena.slots.capacity() < 100);
        let again: Vec<_> = (0..10_000).map(|n| arena.insert(n).unwrap()).collect();
        assert!(rush.iter().all(|&id| arena.get(id).is_none()));
        assert!(again.iter().all(|&id| arena.get(id).is_some()));
    }
}
