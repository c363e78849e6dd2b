//! Claims, grants, and what is shown of waiters.

use std::rc::Rc;

use crate::core::{Kind, Lease, Limit, UnixMs};

/// The turn of a queue entry: a lower number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(pub u64);

/// The host's number for the client of a request. The core only returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterId(pub u64);

/// The lock that a waiter wants, and its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// The lease, which begins with the grant, or `None` for a lock without a lease.
    pub lease: Option<Lease>,
    /// The maximum number of shares, or `None` for any number.
    pub limit: Option<Limit>,
}

/// The arguments of [`Locks::join`](super::Locks::join).
pub struct JoinRequest<'k> {
    pub db: i32,
    pub key: &'k [u8],
    pub claim: Claim,
    pub waiter: WaiterId,
    pub now: UnixMs,
    /// The time of the reply nil, or `None` to wait forever.
    pub deadline: Option<UnixMs>,
}

/// The key of a hold: a lock that is held alone, or one share of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldKey<'n> {
    pub db: i32,
    pub key: &'n [u8],
    /// The token of the share, or `None` for the whole lock.
    pub share: Option<&'n [u8]>,
}

impl<'n> HoldKey<'n> {
    /// Returns the hold key of `owner` as the holder of a lock of this kind.
    pub fn of(db: i32, key: &'n [u8], kind: Kind, owner: &'n [u8]) -> Self {
        Self { db, key, share: (kind == Kind::Shared).then_some(owner) }
    }

    /// Returns the hold key of a lock that is held alone.
    pub fn whole(db: i32, key: &'n [u8]) -> Self {
        Self { db, key, share: None }
    }
}

/// A claim to which the lock is granted, with its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub claim: Claim,
    pub turn: Turn,
    /// The time at which the first request with this turn began to wait.
    pub since: UnixMs,
    pub waiter: WaiterId,
}

impl Grant {
    pub fn hold_key(&self) -> HoldKey<'_> {
        HoldKey::of(self.db, &self.key, self.claim.kind, &self.claim.owner)
    }
}

/// A waiting request, for display.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiter<'w> {
    pub claim: &'w Claim,
    pub since: UnixMs,
    pub deadline: Option<UnixMs>,
    pub id: WaiterId,
}

/// A contended lock, for display.
#[derive(Debug, PartialEq, Eq)]
pub struct Contended<'w> {
    pub key: &'w [u8],
    /// The number of waiting requests, at least 1.
    pub requests: usize,
    /// The time since which the first waiter has waited.
    pub since: UnixMs,
}

/// The contention of all locks.
#[derive(Debug, PartialEq, Eq)]
pub struct Contention {
    /// The number of contended locks.
    pub locks: usize,
    /// The time since which the waiter with the lowest turn has waited, or `None` without waiters.
    pub since: Option<UnixMs>,
}
