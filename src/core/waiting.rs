//! The wait queues: the waiters of each lock, their order and their deadlines.
//!
//! A **queue** belongs to one lock and exists while it has entries. A **queue entry** is a claim on the lock with a turn. A
//! **request** is a connection that waits for the reply until its own deadline. Requests with the same claim share an entry.
//!
//! An entry with requests is **attached**. An entry without requests is **detached**: it is kept for the grace period, and does
//! not delay other waiters. When the same claim waits again, the entry is attached at its old turn.
//!
//! Invariants:
//!
//! - An entry is in exactly one queue.
//! - An entry is in the queue order exactly while it is attached, and in the timer queue `detached` exactly while it is not.
//! - A request gets at most one reply, because the reply removes it.
//! - A queue without requests has no review and no deadline.

mod contention;
mod deadlines;
mod due;
mod ends;
mod entries;
mod queue_order;
mod reviews;
mod types;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::rc::Rc;

use super::tables::IncrementalTable;
use super::tables::Slab;
use super::tables::{NEVER, TimerQueue};
use super::{Arena, Cause, Kind, OrBug, SlowLog, Sweep, UnixMs};
use deadlines::Deadlines;
use queue_order::QueueOrder;
use reviews::{AT_ONCE, Reviews};
pub use types::{
    Claim, Contended, Contention, Due, DueFilter, Grant, GrantedRequest, JoinOutcome, JoinRequest, Queue, QueueId,
    RequestId, Turn, Waiter, WaiterId, WaitingRequest,
};
use types::{QueueEntry, QueueEntryId};

/// All queues of the server.
pub struct WaitQueues {
    by_lock: IncrementalTable<QueueId>,
    /// The queue that was found last. The steps of one command look up the same queue several times.
    last_found: Cell<Option<QueueId>>,
    queues: Arena<Queue>,
    entries: Slab<QueueEntry>,
    /// The number of entries whose claim is a share.
    share_entries: usize,
    requests: Arena<WaitingRequest>,
    claims: IncrementalTable<QueueEntryId>,
    order: QueueOrder,
    next_turn: u64,
    reviews: Reviews,
    deadlines: Deadlines,
    /// The detached entries, by the time when they are dropped.
    detached: TimerQueue<QueueEntryId>,
    /// Queues whose review has stopped after a batch, in the order in which their reviews continue.
    backlog: VecDeque<QueueId>,
    review: Sweep,
    sweep: Sweep,
    /// Queues whose waits are aborted, each with the turn from which [`WaitQueues::next_aborted`] continues.
    aborted: BTreeMap<QueueId, Turn>,
    /// The source of due work that is asked first.
    next_source: usize,
    /// Whether all detached entries are to be dropped.
    drops_detached: bool,
    /// The waits that have ended and took long. Each removal of a request adds one entry at most.
    pub slow_log: SlowLog,
}

/// The maximum number of requests that share an entry. All of them are replied to in one step.
const MAX_COPIES: usize = 1000;

/// Returns the first millisecond at which `time` has passed. As in the server, a key that expires at t still exists at t.
fn first_expired_ms(time: UnixMs) -> UnixMs {
    // NEVER stays NEVER.
    time.saturating_add(1)
}

impl WaitQueues {
    pub const fn new() -> Self {
        Self {
            by_lock: IncrementalTable::new(),
            last_found: Cell::new(None),
            queues: Arena::new(),
            entries: Slab::new(),
            share_entries: 0,
            requests: Arena::new(),
            claims: IncrementalTable::new(),
            order: QueueOrder::new(),
            next_turn: 0,
            reviews: Reviews::new(),
            deadlines: Deadlines::new(),
            detached: TimerQueue::new(),
            backlog: VecDeque::new(),
            review: Sweep::END,
            sweep: Sweep::END,
            aborted: BTreeMap::new(),
            next_source: 0,
            drops_detached: false,
            slow_log: SlowLog::new(),
        }
    }

    /// Returns the number of waiting requests of all locks.
    pub fn waiter_count(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether there are no entries, attached or detached.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the sum of the sizes of all tables. It is 0 when there are no waiters and no detached entries.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        let tables =
            [self.by_lock.len(), self.queues.len(), self.entries.len(), self.requests.len(), self.claims.len()];
        let orders = [
            self.order.entry_count(),
            self.reviews.entry_count(),
            self.deadlines.entry_count(),
            self.detached.entry_count(),
        ];
        tables.into_iter().chain(orders).sum()
    }

    pub fn queue_of(&self, db: i32, key: &[u8]) -> Option<QueueId> {
        if self.is_empty() {
            return None;
        }
        let has_name = |id: &QueueId| self.queues.get(*id).is_some_and(|queue| queue.name() == (db, key));
        let find = || self.by_lock.find((db, key), has_name).copied();
        let found = self.last_found.get().filter(has_name).or_else(find)?;
        self.last_found.set(Some(found));
        Some(found)
    }

    /// Returns the database and the key of a queue's lock.
    pub fn lock_of(&self, queue: QueueId) -> Option<(i32, Rc<[u8]>)> {
        self.queues.get(queue).map(|queue| (queue.db, Rc::clone(&queue.key)))
    }

    /// Returns the event that made the lock free, or is expected to.
    pub fn cause_of(&self, queue: QueueId) -> Cause {
        self.queues.get(queue).map_or(Cause::Other, |queue| queue.cause)
    }

    pub fn waiter_count_of(&self, queue: QueueId) -> usize {
        self.queues.get(queue).map_or(0, |queue| queue.requests as usize)
    }

    pub fn has_capacity(&self, limit: usize) -> bool {
        self.waiter_count() < limit
    }

    /// Returns whether one more request with this claim may share the entry of the claim, if it has one.
    pub fn has_capacity_for_copy(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> bool {
        const LAST: usize = MAX_COPIES - 1;
        let entry = self.entry_of(db, key, kind, owner).and_then(|entry| self.entries.get(entry));
        entry.is_none_or(|entry| self.requests_of(entry).nth(LAST).is_none())
    }

    /// Returns the queue and the claim of a request, if it still waits.
    pub fn origin_of(&self, request: RequestId) -> Option<(&Queue, &Claim)> {
        let request = self.requests.get(request)?;
        let entry = self.entries.get(request.entry).or_bug("a request has no entry")?;
        Some((self.queues.get(entry.queue).or_bug("an entry has no queue")?, &entry.claim))
    }

    /// Returns the waiters that share the entry of a claim, the latest first.
    pub fn waiters_of(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> impl Iterator<Item = WaiterId> {
        let entry = self.entry_of(db, key, kind, owner).and_then(|entry| self.entries.get(entry));
        entry.into_iter().flat_map(|entry| self.requests_of(entry)).map(|(_, request)| request.waiter)
    }

    /// Adds a request to the queue of a lock: to the entry of its claim if there is one, else to a new entry at the end.
    ///
    /// Returns `None` if there are `limit` requests. With `limit` entries, the next detached entry to be dropped is dropped now.
    pub fn join(&mut self, join: JoinRequest<'_>, limit: usize) -> Option<JoinOutcome> {
        if !self.has_capacity(limit) {
            return None;
        }
        let JoinRequest { db, key, claim, waiter, now, deadline } = join;
        debug_assert!(deadline.is_none_or(|deadline| deadline >= now), "a wait ends before it begins");
        debug_assert!(claim.limit.is_none() || claim.kind == Kind::Shared, "only a share has a limit");
        let (lease, share_limit, deadline) = (claim.lease, claim.limit, deadline.unwrap_or(NEVER));
        let known = self.entry_of(db, key, claim.kind, &claim.owner);
        let entry = match known {
            Some(entry) => entry,
            None => {
                self.free_capacity(limit);
                let queue = self.queue_for(db, key)?;
                self.add_entry(queue, claim, now)?
            }
        };
        let request = self.add_request(WaitingRequest {
            entry,
            waiter,
            since: now,
            deadline,
            lease,
            limit: share_limit,
            previous: None,
            next: None,
        })?;
        Some(JoinOutcome { request, rejoined: known.is_some() })
    }

    /// Returns the claim of the first waiter.
    pub fn first(&self, queue: QueueId) -> Option<&Claim> {
        let first = self.entries.get(self.first_entry(queue)?).or_bug("the first entry of a queue does not exist")?;
        debug_assert_eq!(first.queue, queue, "the first entry is in another queue");
        Some(&first.claim)
    }

    /// Returns what [`grant_first`](Self::grant_first) would return, and leaves it in the queue.
    pub fn first_grant(&self, queue: QueueId) -> Option<Grant> {
        let entry = self.entries.get(self.first_entry(queue)?).or_bug("the first entry of a queue does not exist")?;
        let (db, key) = self.lock_of(queue).or_bug("a queue with waiters does not exist")?;
        let QueueEntry { ref claim, turn, since, .. } = *entry;
        let waiters = self.requests_of(entry).map(|(id, request)| request.granted(id)).collect();
        Some(Grant { db, key, claim: claim.clone(), longest_lease: None, turn, since, waiters }.with_merged_leases())
    }

    /// Drops the entry of a claim if it is detached, because the claim was granted without it.
    pub fn drop_detached_entry(&mut self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) {
        let entry = self.entry_of(db, key, kind, owner);
        if let Some(entry) = entry.filter(|&entry| self.is_detached(entry)) {
            self.remove_entry(entry);
        }
    }

    /// Restores the turn of a revoked grant. The entry is detached and kept until `until`, unless the claim waits again.
    pub fn restore(&mut self, grant: Grant, until: UnixMs) {
        let Grant { db, key, claim, turn, since, .. } = grant;
        let entry = self.entry_of(db, &key, claim.kind, &claim.owner).or_else(|| {
            let queue = self.queue_for(db, &key)?;
            let entry = self.add_entry(queue, claim, since)?;
            self.mark_detached(entry, until);
            Some(entry)
        });
        if let Some(entry) = entry {
            self.move_to_turn(entry, turn);
        }
    }

    /// Begins to drop all detached entries. [`pop_due`](Self::pop_due) drops them one by one.
    pub fn drop_detached_entries(&mut self) {
        self.drops_detached = self.detached.first().is_some();
    }

    /// Schedules a review of the lock for the end of its lease, or cancels the review if `lease_end` is `None`.
    pub fn review_at_lease_end(&mut self, queue: QueueId, lease_end: Option<UnixMs>) {
        self.set_review(queue, lease_end.map_or(NEVER, first_expired_ms), Cause::Expiry);
    }

    /// Schedules a review of the lock at `time` with the same cause.
    pub fn review_at(&mut self, queue: QueueId, time: UnixMs) {
        self.set_review(queue, time, self.cause_of(queue));
    }

    /// Schedules an immediate review of the lock, because its key has changed.
    pub fn review_soon(&mut self, queue: QueueId, cause: Cause) {
        self.set_review(queue, AT_ONCE, cause);
    }

    /// Begins a review of all locks, one after the other.
    pub fn review_all(&mut self) {
        self.review.begin();
    }

    /// Begins a sweep over all queues. [`next_in_sweep`](Self::next_in_sweep) returns them one by one.
    pub fn begin_sweep(&mut self) {
        self.sweep.begin();
    }

    pub fn is_sweeping(&self) -> bool {
        self.sweep.has_more()
    }

    /// Returns the next queue of the sweep, or `None` at its end.
    pub fn next_in_sweep(&mut self) -> Option<QueueId> {
        self.sweep.next(&self.queues)
    }

    /// Begins to abort the waits for a lock whose slot has moved. [`next_aborted`](Self::next_aborted) returns the waiters.
    pub fn abort(&mut self, queue: QueueId) {
        self.aborted.entry(queue).or_insert(Turn(u64::MIN));
    }

    /// Returns whether waits of any lock are being aborted.
    pub fn has_aborted(&self) -> bool {
        !self.aborted.is_empty()
    }

    /// Returns the waiters of the next aborted entry, or none at the end of a queue. Returns `None` if no queue is aborted.
    pub fn next_aborted(&mut self) -> Option<Vec<WaiterId>> {
        let (&queue, &from) = self.aborted.first_key_value()?;
        // The order finds a queue by its slot, and the slot of a dropped queue may belong to another one.
        let next = self.queues.get(queue).and_then(|_| self.order.from(queue, from).next());
        let Some((turn, entry)) = next else {
            self.aborted.remove(&queue);
            return Some(Vec::new());
        };
        debug_assert!(turn >= from, "the turns of aborted waits rise");
        self.aborted.insert(queue, Turn(turn.0.saturating_add(1)));
        let entry = self.entries.get(entry).or_bug("an aborted entry does not exist");
        let requests = entry.into_iter().flat_map(|entry| self.requests_of(entry));
        Some(requests.map(|(_, request)| request.waiter).collect())
    }

    /// Returns the waiters of a lock in the order of their turns.
    pub fn waiters(&self, queue: QueueId) -> impl Iterator<Item = Waiter<'_>> {
        let entries = self.order.of(queue).filter_map(|entry| self.entries.get(entry).or_bug("a waiter has no entry"));
        entries.flat_map(|entry| {
            self.requests_of(entry).map(|(_, request)| Waiter {
                claim: &entry.claim,
                since: entry.since,
                deadline: (request.deadline != NEVER).then_some(request.deadline),
                id: request.waiter,
            })
        })
    }

    fn first_entry(&self, queue: QueueId) -> Option<QueueEntryId> {
        self.order.of(queue).next()
    }

    /// Returns the queue of a lock, or a new one.
    fn queue_for(&mut self, db: i32, key: &[u8]) -> Option<QueueId> {
        if let Some(known) = self.queue_of(db, key) {
            return Some(known);
        }
        let id = self.queues.insert(Queue {
            db,
            key: key.into(),
            entries: 0,
            requests: 0,
            review_at: NEVER,
            cause: Cause::Other,
            is_in_backlog: false,
            last_batch_run: 0,
            next_time_out: NEVER,
            last_review: 0,
        })?;
        self.by_lock.insert(id, |hasher, id| {
            let queue = self.queues.get(*id).or_bug("a queue in the index does not exist");
            queue.map_or(0, |queue| hasher.hash_one(queue.name()))
        });
        Some(id)
    }
}

#[cfg(test)]
mod invariants;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
