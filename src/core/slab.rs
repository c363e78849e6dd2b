//! A slab: entries that never move, found by number.
//!
//! They lie in chunks. A table that grows by copying would be half empty, and a client would have to wait for the copy.

use std::num::NonZeroU32;

use super::steps;

/// The number of entries in a chunk.
const CHUNK: usize = 64;

/// The position of an entry in a [`Slab`], counted from 1, so that an `Option<Slot>` takes no more space.
///
/// After the entry is removed, the slot may hold another one. So a slot must not be kept longer than its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub NonZeroU32);

/// Entries of type `T`, found by [`Slot`]. Insertion, look-up and removal are O(1).
pub struct Slab<T> {
    chunks: Vec<Vec<Content<T>>>,
    free: Option<Slot>,
    len: u32,
}

enum Content<T> {
    Taken(T),
    /// Holds the next free slot.
    Free(Option<Slot>),
}

impl Slot {
    pub const MIN: Self = Self(NonZeroU32::MIN);

    /// Returns the chunk of the slot, and the position in it.
    fn position(self) -> (usize, usize) {
        let index = self.0.get().wrapping_sub(1) as usize;
        (index / CHUNK, index % CHUNK)
    }

    /// Returns the slot at a position in a chunk.
    fn at(chunk: usize, position: usize) -> Option<Self> {
        let index = chunk.checked_mul(CHUNK)?.checked_add(position)?.checked_add(1)?;
        u32::try_from(index).ok().and_then(NonZeroU32::new).map(Self)
    }

    /// Returns the next slot.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl<T> Slab<T> {
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), free: None, len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, slot: Slot) -> Option<&T> {
        steps::count();
        let (chunk, position) = slot.position();
        match self.chunks.get(chunk)?.get(position)? {
            Content::Taken(entry) => Some(entry),
            Content::Free(_) => None,
        }
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        match self.content(slot)? {
            Content::Taken(entry) => Some(entry),
            Content::Free(_) => None,
        }
    }

    /// Returns the first entry at or after `from`, in the order of the slots.
    pub fn first_from(&self, from: Slot) -> Option<(Slot, &T)> {
        let (chunk, position) = from.position();
        let skipped = |number: usize| if number == chunk { position } else { 0 };
        let chunks = self.chunks.iter().enumerate().skip(chunk);
        let contents = chunks.flat_map(|(number, contents)| {
            contents.iter().enumerate().skip(skipped(number)).map(move |(place, content)| (number, place, content))
        });
        contents
            .filter_map(|(number, place, content)| match content {
                Content::Taken(entry) => Slot::at(number, place).map(|slot| (slot, entry)),
                Content::Free(_) => None,
            })
            .next()
    }

    /// Adds an entry. Returns `None` if there are 2^32 - 1 entries already.
    pub fn insert(&mut self, entry: T) -> Option<Slot> {
        let len = self.len.checked_add(1)?;
        let slot = match self.free {
            Some(slot) => {
                if let Content::Free(next) = std::mem::replace(self.content(slot)?, Content::Taken(entry)) {
                    self.free = next;
                }
                slot
            }
            None => {
                // No slot is free, so there are as many as entries.
                self.open_chunk()?.push(Content::Taken(entry));
                Slot(NonZeroU32::new(len)?)
            }
        };
        self.len = len;
        Some(slot)
    }

    /// Removes and returns an entry.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let next = self.free;
        let content = self.content(slot)?;
        if matches!(content, Content::Free(_)) {
            return None;
        }
        let content = std::mem::replace(content, Content::Free(next));
        self.free = Some(slot);
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            self.give_back_memory();
        }
        match content {
            Content::Taken(entry) => Some(entry),
            Content::Free(_) => None,
        }
    }

    fn content(&mut self, slot: Slot) -> Option<&mut Content<T>> {
        steps::count();
        let (chunk, position) = slot.position();
        self.chunks.get_mut(chunk)?.get_mut(position)
    }

    /// Returns the chunk to append an entry to.
    fn open_chunk(&mut self) -> Option<&mut Vec<Content<T>>> {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::new());
        }
        self.chunks.last_mut()
    }

    /// Takes the slab apart into its entries.
    pub fn into_entries(self) -> impl Iterator<Item = T> {
        self.chunks.into_iter().flatten().filter_map(|content| match content {
            Content::Taken(entry) => Some(entry),
            Content::Free(_) => None,
        })
    }

    /// Frees the memory of an empty slab. One chunk is kept, so that light contention does not allocate each time.
    fn give_back_memory(&mut self) {
        if self.chunks.len() > 1 {
            *self = Self::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_stays_where_it_is_while_others_come_and_go() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..1_000).map(|n| slab.insert(n).unwrap()).collect();
        for &slot in slots.iter().step_by(2) {
            assert!(slab.remove(slot).is_some());
            assert_eq!(slab.remove(slot), None);
        }
        assert!(slots.iter().step_by(2).all(|&slot| slab.get(slot).is_none()));
        (0..700).for_each(|_| _ = slab.insert(-1).unwrap());
        assert!((1..1_000).step_by(2).all(|n| slab.get(slots[n]) == Some(&(n as i32))));
        assert_eq!(slab.len(), 1_200);
    }

    #[test]
    fn a_slot_that_came_free_is_taken_before_there_is_a_new_one() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..CHUNK).map(|n| slab.insert(n).unwrap()).collect();
        slots.iter().for_each(|&slot| _ = slab.remove(slot));
        assert_eq!(slab.chunks.len(), 1, "one chunk is kept");
        (0..CHUNK).for_each(|n| _ = slab.insert(n).unwrap());
        assert_eq!(slab.chunks.len(), 1);
    }

    #[test]
    fn a_walk_finds_every_entry_once() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..300).map(|n| slab.insert(n).unwrap()).collect();
        (0..300).filter(|n| n % 7 != 3).for_each(|n| _ = slab.remove(slots[n]));
        let (mut found, mut from) = (Vec::new(), Some(Slot::MIN));
        while let Some((slot, &entry)) = from.and_then(|from| slab.first_from(from)) {
            found.push(entry);
            from = slot.next();
        }
        assert_eq!(found, (0..300).filter(|n| n % 7 == 3).collect::<Vec<_>>());
        assert!(Slab::<u8>::new().first_from(Slot::MIN).is_none());
    }

    #[test]
    fn memory_is_given_back_after_a_rush() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..10_000).map(|n| slab.insert(n).unwrap()).collect();
        slots.iter().for_each(|&slot| _ = slab.remove(slot));
        assert!(slab.is_empty() && slab.chunks.capacity() == 0);
    }
}
