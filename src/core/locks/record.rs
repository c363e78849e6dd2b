//! What the module keeps for one lock: its queue, and its holds with their sessions, revocations and deliveries.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::types::{Claim, Grant, Turn, WaiterId};
use crate::core::tables::NEVER;
use crate::core::{Cause, ClientId, Id, Kind, Lease, UnixMs};

/// A handle to a record.
pub type RecordId = Id<Record>;
/// A handle to a queue entry.
pub type EntryId = Id<QueueEntry>;
/// A handle to a hold.
pub type HoldId = Id<Hold>;

/// A lock that has a queue, or holds with a session, a revocation or a delivery.
pub struct Record {
    pub key: Rc<[u8]>,
    pub queue: Queue,
    /// Boxed, because most contended locks have none.
    pub holds: Option<Box<Holds>>,
    /// The number of holds, with those that have ended and are not removed yet.
    pub hold_count: u32,
    /// The kind of work that is asked first in the next turn of the lock.
    pub next_kind: u8,
    /// The place of the lock on the agenda.
    pub work_place: UnixMs,
}

impl Record {
    pub fn new(db: i32, key: &[u8]) -> Self {
        let queue = Queue {
            db,
            entries: 0,
            requests: 0,
            review_at: NEVER,
            cause: Cause::Other,
            continues_review: false,
            time_out_place: NEVER,
            last_review: 0,
        };
        Self { key: key.into(), queue, holds: None, hold_count: 0, next_kind: 0, work_place: NEVER }
    }

    /// Returns the database and the key of the lock.
    pub fn name(&self) -> (i32, &[u8]) {
        (self.queue.db, &self.key)
    }

    /// Returns the database of the lock.
    pub fn db(&self) -> i32 {
        self.queue.db
    }
}

/// The queue of one lock.
pub struct Queue {
    /// The database of the lock. It fits in here, and the record would be larger with it.
    db: i32,
    /// The number of entries, attached or detached.
    pub entries: u32,
    pub requests: u32,
    /// The time of the next review of the lock, or [`NEVER`].
    pub review_at: UnixMs,
    /// The event that is expected to make the lock free.
    pub cause: Cause,
    /// Whether the review of the lock has stopped after a batch. Then it is immediate.
    pub continues_review: bool,
    /// The place of the lock among those with deadlines.
    pub time_out_place: UnixMs,
    /// The number of the last review of all queues that has reached this queue.
    pub last_review: u32,
}

/// A claim with its turn in the queue of one lock. An owner has at most one in a queue.
pub struct QueueEntry {
    pub record: RecordId,
    pub turn: Turn,
    pub claim: Claim,
    /// The time at which the first request with this turn began to wait.
    pub since: UnixMs,
    pub state: EntryState,
}

/// Whether a client waits:
///
/// ```text
/// Attached ──► granted, withdrawn or replaced
///  │    ▲
///  ▼    │ the owner waits again for the same kind
/// Detached ──► dropped
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    Attached(WaitingRequest),
    /// No client waits. The turn is kept until this time.
    Detached(UnixMs),
}

/// A request that waits for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingRequest {
    pub waiter: WaiterId,
    /// The time at which the request began to wait. Its entry may be older.
    pub since: UnixMs,
    /// The time of the reply nil, or [`NEVER`].
    pub deadline: UnixMs,
}

impl QueueEntry {
    /// Returns the queue and the owner.
    pub fn owner_key(&self) -> (RecordId, &[u8]) {
        (self.record, &self.claim.owner)
    }

    /// Returns the request, if a client waits.
    pub fn request(&self) -> Option<&WaitingRequest> {
        if let EntryState::Attached(request) = &self.state { Some(request) } else { None }
    }
}

/// One grant of a lock. It exists while it has a session, a revocation or a delivery.
#[derive(Clone, Debug)]
pub struct Hold {
    pub record: RecordId,
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// The session, while the lock belongs to a connection.
    pub session: Option<Box<Session>>,
    /// The revocation, while the lock is to be released on behalf of a disconnected holder.
    pub revocation: Option<Box<Revocation>>,
    /// The delivery of the grant to a blocked client, while it goes on.
    pub delivery: Option<DeliveryId>,
}

/// The handles of the holds of one lock.
#[derive(Default)]
pub struct Holds {
    /// When these holds were added, see [`Locks::drop_holds`](super::Locks::drop_holds).
    pub epoch: u32,
    pub whole: Option<HoldId>,
    /// Boxed, because most locks are held alone.
    pub shares: Option<Box<Shares>>,
}

/// The holds of the shares of one lock.
#[derive(Default)]
pub struct Shares {
    /// The shares with sessions, by token. Their order is deterministic, so that a simulation can be repeated.
    pub in_session: BTreeMap<Box<[u8]>, HoldId>,
    /// The shares with a revocation or a delivery alone, by token.
    pub others: BTreeMap<Box<[u8]>, HoldId>,
    /// The number of those that are to be returned for their grace periods, see [`Revocation::was_to_return`].
    pub to_return: usize,
    pub state: ShareState,
}

/// What makes a hold belong to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The number of holds, at least 1.
    pub holds: i64,
    /// The length of the lease that each renewal sets.
    pub lease: Lease,
    /// How long the lock is held after the connection has closed, if it is not released immediately.
    pub grace: Option<Lease>,
    /// The connection: that of the latest request for the session.
    pub client: ClientId,
    pub lease_end: SessionLeaseEnd,
    /// The time of the next renewal, or [`NEVER`].
    pub renew_at: UnixMs,
}

/// The end of a session's lease, if it is not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionLeaseEnd {
    /// The lease is new, or an external write has changed it.
    Unknown,
    /// An external write has removed the lease.
    Never,
    At(UnixMs),
    /// The lease has expired, and the session takes the lock again.
    Passed,
}

/// Why and how a lock is to be released on behalf of a disconnected holder, if that still holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The grant that no connection has received. Its turn is restored when the lock is released.
    pub grant: Option<Grant>,
    /// Whether all holds are released, and not only the first one.
    pub all_holds: bool,
    /// The end of the grace period of the session, if it had one. Until then the lock stays held.
    pub grace_end: Option<UnixMs>,
    /// The end of the session's lease. If that passes within the grace period, the lock is returned with these holds.
    pub lease_end: SessionLeaseEnd,
    pub holds: i64,
    /// Whether it is a share that was to be returned to its session when the connection closed.
    pub was_to_return: bool,
    /// The time of the next attempt.
    pub due: UnixMs,
}

/// A handle to a delivery.
pub type DeliveryId = Id<Delivery>;

/// A grant that is being delivered to a blocked client.
pub struct Delivery {
    pub grant: Grant,
    pub hold: HoldId,
    /// Whether the owner was notified of the grant by the reply to another request. Then the grant stays.
    pub is_notified: bool,
}

/// The state of the sessions of all shares of one lock:
///
/// ```text
/// Stable ──► Recheck ──► Stable
///   └───────────┴──────► Return ──► Stable, or Recheck if the scan is outdated
/// ```
#[derive(Default)]
pub enum ShareState {
    /// The sessions have the shares in the key.
    #[default]
    Stable,
    /// External writes may have removed shares. The scan ends the sessions of those.
    Recheck(Scan),
    /// The scan returns the shares to their sessions. The lock is queued, or the renewal of its next share continues the scan.
    Return { scan: Scan, is_queued: bool },
}

/// A scan over the shares of a lock, in the order of their tokens.
#[derive(Default)]
pub struct Scan {
    /// A token that is not after the next token of the scan.
    pub from: Box<[u8]>,
    /// Whether external writes may have removed shares since the scan began. Then a recheck follows.
    pub is_outdated: bool,
}
