//! An index of the places by their claims.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::types::{Place, PlaceId, QueueId};
use crate::core::Kind;
use crate::core::slab::Slab;

/// A hash table of places. Their keys are not copied, but read from the places.
pub struct ClaimIndex {
    table: HashTable<PlaceId>,
    /// The hasher, whose key is random because clients choose what is hashed. It is created with the first place,
    /// because a constant cannot have one.
    hasher: Option<RandomState>,
}

/// What identifies a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimKey<'n> {
    pub queue: QueueId,
    pub kind: Kind,
    pub owner: &'n [u8],
}

impl Place {
    /// Returns the key of the place in the index.
    pub fn claim_key(&self) -> ClaimKey<'_> {
        ClaimKey { queue: self.queue, kind: self.claim.kind, owner: &self.claim.owner }
    }
}

impl ClaimIndex {
    pub const fn new() -> Self {
        Self { table: HashTable::new(), hasher: None }
    }

    /// Returns the number of places.
    #[cfg(feature = "simulated")]
    pub fn place_count(&self) -> usize {
        self.table.len()
    }

    /// Returns the place of a claim, if it has one.
    pub fn find(&self, key: ClaimKey<'_>, places: &Slab<Place>) -> Option<PlaceId> {
        let hash = self.hasher.as_ref()?.hash_one(key);
        let is_equal = |&id: &PlaceId| places.get(id).is_some_and(|place| place.claim_key() == key);
        self.table.find(hash, is_equal).copied()
    }

    /// Adds a place. `places` has it, and all places that were added before.
    pub fn insert(&mut self, id: PlaceId, places: &Slab<Place>) {
        let hasher = self.hasher.get_or_insert_default();
        let hash = |&id: &PlaceId| places.get(id).map_or(0, |place| hasher.hash_one(place.claim_key()));
        self.table.insert_unique(hash(&id), id, hash);
    }

    /// Removes the place `id`, whose key is `key`.
    pub fn remove(&mut self, key: ClaimKey<'_>, id: PlaceId) {
        let Some(hasher) = &self.hasher else { return };
        if let Ok(entry) = self.table.find_entry(hasher.hash_one(key), |&other| other == id) {
            entry.remove();
        }
        if self.table.is_empty() {
            self.table = HashTable::new(); // Gives back the memory after a peak of waiters.
        }
    }
}
