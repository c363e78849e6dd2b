//! The keys of the hash tables of entries and queues.

use std::hash::{Hash, Hasher};

use super::types::{Queue, QueueEntry, QueueId};
use crate::core::Kind;

/// The key of a queue entry: its queue and its claim.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClaimKey<'n> {
    pub queue: QueueId,
    pub kind: Kind,
    pub owner: &'n [u8],
}

/// The entries of an owner in a queue have the same hash, whatever their kinds are.
impl Hash for ClaimKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.queue, self.owner).hash(state);
    }
}

/// The key of a queue: the name of its lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockName<'n> {
    pub db: i32,
    pub key: &'n [u8],
}

impl QueueEntry {
    pub fn claim_key(&self) -> ClaimKey<'_> {
        ClaimKey { queue: self.queue, kind: self.claim.kind, owner: &self.claim.owner }
    }
}

impl Queue {
    pub fn lock_name(&self) -> LockName<'_> {
        LockName { db: self.db, key: &self.key }
    }
}
