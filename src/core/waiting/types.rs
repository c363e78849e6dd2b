//! The types of the wait queues.

use std::rc::Rc;

use crate::core::tables::Slot;
use crate::core::{Cause, HoldKey, Id, Kind, Lease, Limit, UnixMs};

/// A handle to the queue of a contended lock.
pub type QueueId = Id<Queue>;
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

/// The arguments of [`WaitQueues::join`](super::WaitQueues::join).
pub struct JoinRequest<'k> {
    pub db: i32,
    pub key: &'k [u8],
    pub claim: Claim,
    pub waiter: WaiterId,
    pub now: UnixMs,
    /// The time of the reply nil, or `None` to wait forever.
    pub deadline: Option<UnixMs>,
}

/// The result of [`WaitQueues::join`](super::WaitQueues::join).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinOutcome {
    pub request: RequestId,
    /// Whether the claim had an entry already.
    pub rejoined: bool,
}

/// The queue of one lock.
pub struct Queue {
    pub db: i32,
    pub key: Rc<[u8]>,
    /// The number of entries, attached or detached.
    pub entries: u32,
    pub requests: u32,
    /// The time of the next review of the lock, its turn if it is immediate, or [`NEVER`](crate::core::tables::NEVER).
    pub review_at: UnixMs,
    /// The event that is expected to make the lock free.
    pub cause: Cause,
    /// Whether the review of the lock has stopped after a batch. Then `review_at` is `NEVER`.
    pub is_in_backlog: bool,
    /// The number of the last run of the background work in which the lock had a whole batch of grants.
    pub last_batch_run: u32,
    /// The turn of the queue among the queues with deadlines, or `NEVER`.
    pub next_time_out: UnixMs,
    /// The number of the last review of all queues that has reached this queue.
    pub last_review: u32,
}

impl Queue {
    /// Returns the database and the key of the lock.
    pub fn name(&self) -> (i32, &[u8]) {
        (self.db, &self.key)
    }
}

/// A claim with its turn in the queue of one lock.
pub struct QueueEntry {
    pub queue: QueueId,
    pub turn: Turn,
    /// The claim. Its limit is the smallest one of the requests that share the entry, or that of the last request while detached.
    /// Its lease is that of the first request. [`Grant`] has the lease to be granted.
    pub claim: Claim,
    pub since: UnixMs,
    /// The latest of the requests that share the entry, or `None` while it is detached.
    pub latest: Option<RequestId>,
    /// The time when a detached entry is dropped. `NEVER` while it is attached.
    pub kept_until: UnixMs,
}

impl QueueEntry {
    /// Returns the queue and the owner. The entries of an owner in a queue differ in their kinds.
    pub fn owner_key(&self) -> (QueueId, &[u8]) {
        (self.queue, &self.claim.owner)
    }
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

/// Due work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The lock of this queue may be free, and its key is to be checked.
    Review(QueueId),
    /// This request has timed out.
    TimedOut(RequestId),
    /// A detached entry was dropped. There is nothing left to do.
    Dropped,
    /// The review of all locks has skipped a lock without waiters. There is nothing to do.
    Skipped,
}

/// The kinds of due work to return, from the narrowest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DueFilter {
    /// Only work that writes to no key.
    ReadOnly,
    /// All but reviews that have stopped after a batch.
    NoBacklog,
    All,
}
