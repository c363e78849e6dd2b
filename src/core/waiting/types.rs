//! The types of the wait queues.

use std::rc::Rc;

use crate::core::slab::Slot;
use crate::core::timer_queue::NEVER;
use crate::core::{Cause, HoldKey, Id, Kind, Lease, Limit, UnixMs};

/// A handle to the queue of a contended lock.
pub type QueueId = Id<Queue>;
/// A handle to a waiting request.
pub type RequestId = Id<Request>;
/// A handle to a place. It is used inside the wait queues only, where nothing keeps it longer than its place.
pub type QueueEntryId = Slot;

/// The turn of a place: a lower number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(pub u64);

/// The host's number for the client of a request. The core only hands it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterId(pub u64);

/// What a waiter wants, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// The lease, which counts from the grant, or `None` for a lock without a lease.
    pub lease: Option<Lease>,
    /// The number of shares up to which a share is granted, or `None` for any number.
    pub limit: Option<Limit>,
}

/// The arguments of [`WaitQueues::join`](super::WaitQueues::join).
pub struct JoinRequest<'k> {
    pub db: i32,
    pub key: &'k [u8],
    pub claim: Claim,
    pub waiter: WaiterId,
    pub now: UnixMs,
    /// The time of the reply nil, or `None` to wait for ever.
    pub deadline: Option<UnixMs>,
}

/// The result of [`WaitQueues::join`](super::WaitQueues::join).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinOutcome {
    pub request: RequestId,
    /// The claim had a place already.
    pub rejoined: bool,
}

/// The queue of one lock.
pub struct Queue {
    pub db: i32,
    pub key: Rc<[u8]>,
    /// The number of places, present or away.
    pub entries: u32,
    /// The number of requests.
    pub requests: u32,
    /// The time of the next review of the lock, or [`NEVER`].
    pub review_at: UnixMs,
    /// What is expected to make the lock free.
    pub cause: Cause,
    /// Whether the review of the lock has stopped, and is to go on in its turn. Then it has no time.
    pub is_in_backlog: bool,
    /// The number of the last run of the background work before or in which the lock had a whole batch of grants.
    pub last_batch_run: u32,
    /// The turn of the queue among those with deadlines, or [`NEVER`].
    pub next_time_out: UnixMs,
    /// The number of the review of all queues that has reached this queue last.
    pub last_review: u32,
}

impl Queue {
    pub fn new(db: i32, key: Rc<[u8]>) -> Self {
        let (review_at, cause, next_time_out) = (NEVER, Cause::Other, NEVER);
        Self {
            db,
            key,
            entries: 0,
            requests: 0,
            review_at,
            cause,
            is_in_backlog: false,
            last_batch_run: 0,
            next_time_out,
            last_review: 0,
        }
    }
}

/// A claim with its turn in the line of one lock.
pub struct QueueEntry {
    pub queue: QueueId,
    pub turn: Turn,
    /// The claim, with the smallest limit of the requests that share the place; that of the last one while it is away. The
    /// lease is that of the first request: [`Grant`] has the lease to be granted.
    pub claim: Claim,
    pub since: UnixMs,
    /// The latest of the requests that share the place, or `None` while it is away.
    pub latest: Option<RequestId>,
    /// The time when the place is dropped, while it is away.
    pub kept_until: UnixMs,
}

/// A connection that waits for the reply.
pub struct Request {
    pub entry: QueueEntryId,
    pub waiter: WaiterId,
    pub deadline: UnixMs,
    pub lease: Option<Lease>,
    pub limit: Option<Limit>,
    /// The next earlier request at the same place.
    pub previous: Option<RequestId>,
    /// The next later request at the same place.
    pub next: Option<RequestId>,
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
    pub waiter: WaiterId,
    /// The lease that it asked for.
    pub lease: Option<Lease>,
}

impl Grant {
    /// Keeps the requests for which `is_kept` returns true. The lease is then the one that these asked for.
    pub fn retain(&mut self, mut is_kept: impl FnMut(WaiterId) -> bool) {
        self.waiters.retain(|request| is_kept(request.waiter));
        self.merge_leases();
    }

    /// Sets the lease to the longest that the requests asked for, where no lease is the longest.
    pub(super) fn merge_leases(&mut self) {
        let leases = || self.waiters.iter().map(|request| request.lease);
        let longest = leases().max().flatten();
        self.longest_lease = longest;
        self.claim.lease = longest.filter(|_| leases().all(|lease| lease.is_some()));
    }

    /// Returns what is granted.
    pub fn hold_key(&self) -> HoldKey<'_> {
        HoldKey::of(self.db, &self.key, self.claim.kind, &self.claim.owner)
    }

    /// Returns the lease to grant.
    ///
    /// It is the longest that a request asked for, where no lease counts as the longest. But a lock in a session always
    /// has a lease, because that frees the lock if the server fails.
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

/// A lock that is waited for, for display.
#[derive(Debug, PartialEq, Eq)]
pub struct Contended<'w> {
    pub key: &'w [u8],
    /// The number of requests that wait, at least 1.
    pub requests: usize,
    /// The time since which the first in line has waited.
    pub since: UnixMs,
}

/// How much is waited for, over all locks.
#[derive(Debug, PartialEq, Eq)]
pub struct Contention {
    /// The number of locks that are waited for.
    pub locks: usize,
    /// The time since which the first of all who wait has waited, if anybody does.
    pub since: Option<UnixMs>,
}

/// Something that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The lock of this queue may be free: look at its key.
    Review(QueueId),
    /// This request has timed out.
    TimedOut(RequestId),
    /// A place that was away was dropped. There is nothing left to do.
    Dropped,
    /// The review of all locks has come by one that nobody waits for. There is nothing to do.
    Skipped,
}

/// The things to consider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueFilter {
    All,
    /// All but reviews that have stopped with waiters left.
    NoBacklog,
    /// Only those that can be done without writing to a key.
    ReadOnly,
}
