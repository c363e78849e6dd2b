//! A slab: entries that never move, found by number.
//!
//! The entries are stored in chunks. A table that grows by copying would be half empty, and a client would have to wait for the
//! copy. The memory of a chunk is freed with its last entry, so the removal of the last entry of a large slab is short.

use std::num::NonZeroU32;

use super::timer_queue::Entry;
use crate::core::{OrBug, bug, steps};

/// The number of entries in a chunk.
const CHUNK: usize = 64;

/// The position of an entry in a [`Slab`], counted from 1, so that an `Option<Slot>` takes no more memory.
///
/// After the entry is removed, the slot may hold another entry, so a slot must not be kept longer than its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub NonZeroU32);

/// Entries of type `T`, found by [`Slot`]. Insertion, look-up and removal are O(1).
pub struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// The first chunk with a free position, if there is one. The chunks with free positions are a linked list.
    open: Option<usize>,
    len: u32,
}

struct Chunk<T> {
    /// The positions that have been taken since the chunk was last empty.
    contents: Vec<Content<T>>,
    /// The number of entries. A scan skips a chunk without entries in one step.
    taken: usize,
    /// The first free position in `contents`. The free positions are a linked list.
    free: Option<u8>,
    /// The next chunk with a free position, if this one has any.
    next_open: Option<usize>,
}

/// An entry, or a free position.
type Content<T> = Result<T, Free>;

/// A free position, with the next one of the chunk.
struct Free(Option<u8>);

impl Slot {
    pub const MIN: Self = Self(NonZeroU32::MIN);

    fn position(self) -> (usize, usize) {
        let index = self.0.get().wrapping_sub(1) as usize;
        (index / CHUNK, index % CHUNK)
    }

    fn at(chunk: usize, position: usize) -> Option<Self> {
        let index = chunk.checked_mul(CHUNK)?.checked_add(position)?.checked_add(1)?;
        u32::try_from(index).ok().and_then(NonZeroU32::new).map(Self)
    }

    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl Entry for Slot {
    const LEAST: Self = Self::MIN;
}

impl<T> Chunk<T> {
    fn is_full(&self) -> bool {
        self.taken >= CHUNK
    }

    /// Adds an entry to a chunk that is not full. Returns its position.
    fn insert(&mut self, entry: T) -> Option<usize> {
        debug_assert!(!self.is_full(), "an open chunk is full");
        let position = self.free.map_or(self.contents.len(), usize::from);
        match self.contents.get_mut(position) {
            Some(content) => match std::mem::replace(content, Ok(entry)) {
                Err(Free(next)) => self.free = next,
                Ok(_) => {
                    bug("a free position has an entry");
                    return None;
                }
            },
            None => self.contents.push(Ok(entry)),
        }
        self.taken = self.taken.saturating_add(1);
        Some(position)
    }

    fn remove(&mut self, position: usize) -> Option<T> {
        let content = self.contents.get_mut(position).filter(|content| content.is_ok())?;
        let removed = std::mem::replace(content, Err(Free(self.free)));
        self.free = u8::try_from(position).ok().or_bug("a position is outside of its chunk");
        debug_assert!(self.taken > 0, "an entry was not counted");
        self.taken = self.taken.saturating_sub(1);
        removed.ok()
    }
}

impl<T> Slab<T> {
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), open: None, len: 0 }
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
        self.chunks.get(chunk)?.contents.get(position)?.as_ref().ok()
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        steps::count();
        let (chunk, position) = slot.position();
        self.chunks.get_mut(chunk)?.contents.get_mut(position)?.as_mut().ok()
    }

    /// Returns the first entry at or after `from`, in the order of the slots.
    ///
    /// O(n / 64) in the number of slots that are free before it.
    pub fn first_from(&self, from: Slot) -> Option<(Slot, &T)> {
        let (chunk, position) = from.position();
        let skipped = |number| if number == chunk { position } else { 0 };
        (chunk..self.chunks.len()).find_map(|number| self.first_in(number, skipped(number)))
    }

    /// Returns the first entry of a chunk behind the first `skipped` positions.
    fn first_in(&self, number: usize, skipped: usize) -> Option<(Slot, &T)> {
        steps::count();
        let chunk = self.chunks.get(number).filter(|chunk| chunk.taken > 0)?;
        let mut contents = chunk.contents.iter().enumerate().skip(skipped);
        contents.find_map(|(position, content)| Some((Slot::at(number, position)?, content.as_ref().ok()?)))
    }

    /// Adds an entry. Returns `None` if there are almost 2^32 entries already.
    pub fn insert(&mut self, entry: T) -> Option<Slot> {
        let number = self.open.unwrap_or(self.chunks.len());
        let len = Slot::at(number, CHUNK).and(self.len.checked_add(1))?;
        if number == self.chunks.len() {
            self.chunks.push(Chunk { contents: Vec::new(), taken: 0, free: None, next_open: None });
            self.open = Some(number);
        }
        let chunk = self.chunks.get_mut(number).or_bug("an open chunk does not exist")?;
        let position = chunk.insert(entry)?;
        if chunk.is_full() {
            self.open = chunk.next_open.take();
        }
        self.len = len;
        Slot::at(number, position)
    }

    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        steps::count();
        let (number, position) = slot.position();
        let chunk = self.chunks.get_mut(number)?;
        let was_full = chunk.is_full();
        let removed = chunk.remove(position)?;
        if was_full {
            chunk.next_open = self.open.replace(number);
        }
        if chunk.taken == 0 && number > 0 {
            (chunk.contents, chunk.free) = (Vec::new(), None);
        }
        debug_assert!(self.len > 0, "an entry was not counted");
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            debug_assert!(self.chunks.iter().take(2).all(|chunk| chunk.taken == 0), "an empty slab has entries");
            if self.chunks.len() > 1 {
                *self = Self::new(); // One chunk is kept, so that light contention does not allocate each time.
            }
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_keeps_slot_while_others_change() {
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
    fn free_slot_is_reused_before_new_one() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..CHUNK).map(|n| slab.insert(n).unwrap()).collect();
        slots.iter().for_each(|&slot| _ = slab.remove(slot));
        assert_eq!(slab.chunks.len(), 1, "one chunk is kept");
        (0..CHUNK).for_each(|n| _ = slab.insert(n).unwrap());
        assert_eq!(slab.chunks.len(), 1);
    }

    #[test]
    fn scan_finds_every_entry_once() {
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
    #[cfg(feature = "simulated")]
    fn scan_skips_chunks_of_free_slots() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..100 * CHUNK).map(|n| slab.insert(n).unwrap()).collect();
        let (&last, others) = slots.split_last().unwrap();
        others.iter().for_each(|&slot| _ = slab.remove(slot));
        steps::take();
        assert_eq!(slab.first_from(Slot::MIN).map(|(slot, _)| slot), Some(last));
        assert_eq!(steps::take(), 100, "one for each chunk");
    }

    #[test]
    fn memory_is_freed_chunk_by_chunk() {
        let mut slab = Slab::new();
        let slots: Vec<_> = (0..10_000).map(|n| slab.insert(n).unwrap()).collect();
        for (removed, &slot) in (1..).zip(&slots) {
            assert!(slab.remove(slot).is_some());
            let freed = slab.chunks.iter().skip(1).filter(|chunk| chunk.contents.capacity() == 0).count();
            assert!(slab.is_empty() || freed == (removed / CHUNK).saturating_sub(1), "{freed} after {removed}");
        }
        assert!(slab.is_empty() && slab.chunks.capacity() == 0);
    }
}
