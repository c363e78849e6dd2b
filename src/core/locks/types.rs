//! Requests, their claims and their grants.

use std::rc::Rc;

use crate::core::tables::Slot;
use crate::core::{Id, Kind, Lease, Limit, UnixMs};

/// A handle to a waiting request.
pub type RequestId = Id<WaitingRequest>;
/// A handle to a queue entry. It is used inside the wait queues only, and is never kept longer than its entry.
pub type QueueEntryId = Slot;

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

/// The result of [`Locks::join`](super::Locks::join).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinOutcome {
    pub request: RequestId,
    /// Whether the claim had an entry already.
    pub rejoined: bool,
}

/// A connection that waits for the reply.
pub struct WaitingRequest {
    pub entry: QueueEntryId,
    pub waiter: WaiterId,
    /// The time at which the request began to wait. Its entry may be older.
    pub since: UnixMs,
    pub deadline: UnixMs,
    pub lease: Option<Lease>,
    pub limit: Option<Limit>,
    /// The next earlier request of the same entry.
    pub previous: Option<RequestId>,
    /// The next later request of the same entry.
    pub next: Option<RequestId>,
}

impl WaitingRequest {
    /// Returns the part of the request that a [`Grant`] keeps.
    pub fn granted(&self, id: RequestId) -> GrantedRequest {
        GrantedRequest { id, waiter: self.waiter, lease: self.lease }
    }
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

/// A claim to which the lock is granted, with all requests that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub claim: Claim,
    /// The longest lease that a request asked for, even if another one asked for none.
    pub longest_lease: Option<Lease>,
    pub turn: Turn,
    pub since: UnixMs,
    pub waiters: Vec<GrantedRequest>,
}

/// A request to which the lock is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedRequest {
    pub id: RequestId,
    pub waiter: WaiterId,
    /// The lease that it asked for.
    pub lease: Option<Lease>,
}

impl Grant {
    /// Keeps the requests for which `is_kept` returns true, and recomputes the lease from them.
    pub fn retain(&mut self, mut is_kept: impl FnMut(GrantedRequest) -> bool) {
        self.waiters.retain(|request| is_kept(*request));
        self.merge_leases();
    }

    pub(super) fn with_merged_leases(mut self) -> Self {
        self.merge_leases();
        self
    }

    /// Sets the lease to the longest that the requests asked for, where no lease is the longest.
    fn merge_leases(&mut self) {
        let leases = || self.waiters.iter().map(|request| request.lease);
        let longest = leases().max().flatten();
        self.longest_lease = longest;
        self.claim.lease = longest.filter(|_| leases().all(|lease| lease.is_some()));
    }

    pub fn hold_key(&self) -> HoldKey<'_> {
        HoldKey::of(self.db, &self.key, self.claim.kind, &self.claim.owner)
    }

    /// Returns the lease to grant.
    ///
    /// It is the longest that a request asked for, where no lease counts as the longest. A lock in a session always has a lease,
    /// because the lease frees the lock if the server fails.
    pub fn lease(&self, in_session: bool) -> Option<Lease> {
        if in_session { self.longest_lease } else { self.claim.lease }
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
