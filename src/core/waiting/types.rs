//! The words of the waiting waiting.

use std::rc::Rc;

use crate::core::slab::Slot;
use crate::core::timer_queue::NEVER;
use crate::core::{Cause, Id, Kind, Lease, UnixMs};

/// Handle to the queue of a contended lock.
pub type QueueId = Id<Queue>;
/// Handle to a request that waits.
pub type RequestId = Id<Request>;
/// Handle to a place. It stays in the waiting, where nothing remembers it longer than the place is there.
pub type PlaceId = Slot;

/// The turn of a place: lower is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(pub u64);

/// The host's handle to a blocked client; the core only hands it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterId(pub u64);

/// What a waiter wants, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// Counts from the moment of the grant; `None`: held until released.
    pub lease: Option<Lease>,
}

/// A request to join a line.
pub struct Join<'k> {
    pub db: i32,
    pub key: &'k [u8],
    pub claim: Claim,
    pub waiter: WaiterId,
    pub now: UnixMs,
    /// When the answer is nil; `None` waits for ever.
    pub deadline: Option<UnixMs>,
}

/// A connection has begun to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    pub request: RequestId,
    /// At a place that its claim had already.
    pub rejoined: bool,
}

/// The queue of one lock.
pub struct Queue {
    pub db: i32,
    pub key: Rc<[u8]>,
    /// Places, present or away.
    pub places: u32,
    /// Requests, of which a place that is present has one or more.
    pub requests: u32,
    /// When to look at the lock again, unless something happens to it before.
    pub review_at: UnixMs,
    /// What is thought to free the lock next.
    pub cause: Cause,
}

impl Queue {
    pub fn new(db: i32, key: Rc<[u8]>) -> Self {
        Self { db, key, places: 0, requests: 0, review_at: NEVER, cause: Cause::Other }
    }
}

/// A turn in the line of one lock.
pub struct Place {
    pub queue: QueueId,
    pub turn: Turn,
    /// With the lease that is to be granted.
    pub claim: Claim,
    /// The longest lease that a copy asked for, should one of the others want none.
    pub longest_lease: Option<Lease>,
    pub since: UnixMs,
    /// The requests that share it, the latest first; none while it is away.
    pub latest: Option<RequestId>,
    /// When it is dropped, while it is away.
    pub kept_until: UnixMs,
}

/// A connection that waits.
pub struct Request {
    pub place: PlaceId,
    pub waiter: WaiterId,
    pub deadline: UnixMs,
    /// Its neighbours among the requests that share the place.
    pub earlier: Option<RequestId>,
    pub later: Option<RequestId>,
}

/// The claim whose turn has come, out of its queue, with every connection that is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub claim: Claim,
    /// The longest lease that a copy of the claim asked for, should one of the others want none.
    pub longest_lease: Option<Lease>,
    pub turn: Turn,
    pub since: UnixMs,
    pub waiters: Vec<WaiterId>,
}

impl Grant {
    /// The lease that all copies of the claim get: the longest, and none is the longest. But one in a session has a
    /// lease, which frees the lock should the server itself die.
    pub fn lease(&self, in_session: bool) -> Option<Lease> {
        if in_session { self.longest_lease } else { self.claim.lease }
    }
}

/// A waiter as an onlooker sees it.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiter<'w> {
    pub claim: &'w Claim,
    pub since: UnixMs,
    pub deadline: Option<UnixMs>,
    pub id: WaiterId,
}

/// Something whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The lock of this queue may have come free: look at it.
    Review(QueueId),
    /// The time of this connection is up. Its request is in no queue any more.
    TimedOut(WaiterId),
    /// A place that was away was dropped: nothing is to be done.
    Dropped,
}

/// Which things fall due: all, or only those that write nothing because nothing may be written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueFilter {
    All,
    ReadOnly,
}
