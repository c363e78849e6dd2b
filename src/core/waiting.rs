//! The wait queues: who waits for which lock, in which order, and until when.
//!
//! A **queue** belongs to one lock and exists while it has places. A **place** is a claim on the lock with a turn in
//! the line. A **request** is a connection that waits for the reply, with a deadline of its own. Requests with the same
//! claim share a place, so a request that is sent twice stands in line once. A place whose last request has left may be
//! kept for a while: it is **away**, which means that it is not in the line and holds nobody up. When the same claim
//! comes back, the place returns to its turn.
//!
//! Invariants: a place is in exactly one queue. It is in the line exactly while it has requests, and has a time to be
//! dropped exactly while it has none. A request is answered at most once, because the answer removes it.

mod contention;
mod deadlines;
mod due;
mod entries;
mod names;
mod queue_order;
mod types;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::handle_table::HandleTable;
use super::slab::Slab;
use super::timer_queue::{NEVER, TimerQueue};
use super::{Arena, Cause, Kind, Sweep, UnixMs};
use deadlines::Deadlines;
use names::LockName;
use queue_order::QueueOrder;
pub use types::{
    Claim, Contended, Contention, Due, DueFilter, Grant, GrantedRequest, JoinOutcome, JoinRequest, Queue, QueueId,
    Request, RequestId, Turn, Waiter, WaiterId,
};
use types::{QueueEntry, QueueEntryId};

/// All queues of the server.
pub struct WaitQueues {
    by_lock: HandleTable<QueueId>,
    /// The queue that was looked up last: the steps of one command ask for the same again and again.
    last_found: Cell<Option<QueueId>>,
    queues: Arena<Queue>,
    entries: Slab<QueueEntry>,
    /// The number of places for shares.
    share_entries: usize,
    requests: Arena<Request>,
    claims: HandleTable<QueueEntryId>,
    order: QueueOrder,
    next_turn: u64,
    reviews: TimerQueue<QueueId>,
    deadlines: Deadlines,
    /// Places that are away, by the time when they are dropped.
    detached: TimerQueue<QueueEntryId>,
    /// Queues whose review has stopped with waiters left that can be granted the lock, in the order in which their reviews go on.
    backlog: VecDeque<QueueId>,
    /// A running review of all queues.
    review: Sweep,
    /// A running round over all queues.
    sweep: Sweep,
    /// Queues of locks that are another server's, and from which turn on their places are to be returned.
    aborted: BTreeMap<QueueId, Turn>,
    /// Which of the sources of due work is asked first.
    next_source: usize,
    /// Whether all places that are away are to be dropped.
    drops_detached: bool,
}

/// The number of requests that share a place at most. All of them are answered in one step.
const MAX_COPIES: usize = 1000;

/// Returns the first millisecond at which `time` has passed. The server counts like this, too: a key that expires at t
/// still exists at t.
fn first_expired_ms(time: UnixMs) -> UnixMs {
    time.saturating_add(1)
}

impl WaitQueues {
    pub const fn new() -> Self {
        Self {
            by_lock: HandleTable::new(),
            last_found: Cell::new(None),
            queues: Arena::new(),
            entries: Slab::new(),
            share_entries: 0,
            requests: Arena::new(),
            claims: HandleTable::new(),
            order: QueueOrder::new(),
            next_turn: 0,
            reviews: TimerQueue::new(),
            deadlines: Deadlines::new(),
            detached: TimerQueue::new(),
            backlog: VecDeque::new(),
            review: Sweep::END,
            sweep: Sweep::END,
            aborted: BTreeMap::new(),
            next_source: 0,
            drops_detached: false,
        }
    }

    /// Returns the number of requests that wait, over all locks.
    pub fn waiter_count(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether no queue has a place, present or away.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of entries of all kinds, which is 0 when everybody has left.
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

    /// Returns the queue of a lock, if it has places.
    pub fn queue_of(&self, db: i32, key: &[u8]) -> Option<QueueId> {
        if self.is_empty() {
            return None;
        }
        let name = LockName { db, key };
        let has_name = |id| self.queues.get(id).is_some_and(|queue| queue.lock_name() == name);
        let found = self.last_found.get().filter(|&id| has_name(id)).or_else(|| self.by_lock.find(name, has_name))?;
        self.last_found.set(Some(found));
        Some(found)
    }

    /// Returns the database and the key of a queue's lock.
    pub fn lock_of(&self, queue: QueueId) -> Option<(i32, Rc<[u8]>)> {
        self.queues.get(queue).map(|queue| (queue.db, Rc::clone(&queue.key)))
    }

    /// Returns what has made the lock free, or is expected to, as far as events tell.
    pub fn cause_of(&self, queue: QueueId) -> Cause {
        self.queues.get(queue).map_or(Cause::Other, |queue| queue.cause)
    }

    /// Returns the number of requests that wait for a lock.
    pub fn waiter_count_of(&self, queue: QueueId) -> usize {
        self.queues.get(queue).map_or(0, |queue| queue.requests as usize)
    }

    /// Returns whether there are fewer than `limit` requests.
    pub fn has_capacity(&self, limit: usize) -> bool {
        self.waiter_count() < limit
    }

    /// Returns whether one more request with this claim may share its place, if it has one.
    pub fn has_capacity_for_copy(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> bool {
        let entry = self.entry_of(db, key, kind, owner).and_then(|entry| self.entries.get(entry));
        entry.is_none_or(|entry| self.requests_of(entry).nth(MAX_COPIES.saturating_sub(1)).is_none())
    }

    /// Returns what a request waits for, if it still does: the lock, and the claim of its place.
    pub fn origin_of(&self, request: RequestId) -> Option<(&Queue, &Claim)> {
        let entry = self.entries.get(self.requests.get(request)?.entry)?;
        Some((self.queues.get(entry.queue)?, &entry.claim))
    }

    /// Returns the waiters that share the place of a claim, the latest first.
    pub fn waiters_of(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> impl Iterator<Item = WaiterId> {
        let entry = self.entry_of(db, key, kind, owner).and_then(|entry| self.entries.get(entry));
        entry.into_iter().flat_map(|entry| self.requests_of(entry)).map(|(_, request)| request.waiter)
    }

    /// Adds a request to the queue of a lock: at the place of its claim if it has one, else at the end of the line.
    ///
    /// Returns `None` if there are `limit` requests already. Places that are away count only as long as there is room:
    /// if all `limit` places are taken, the one that would be dropped next makes way.
    pub fn join(&mut self, join: JoinRequest<'_>, limit: usize) -> Option<JoinOutcome> {
        if !self.has_capacity(limit) {
            return None;
        }
        let JoinRequest { db, key, claim, waiter, now, deadline } = join;
        let (lease, share_limit, deadline) = (claim.lease, claim.limit, deadline.unwrap_or(NEVER));
        let known = self.entry_of(db, key, claim.kind, &claim.owner);
        let entry = match known {
            Some(entry) => entry,
            None => {
                self.free_capacity(limit);
                let queue = self.queue_of(db, key).or_else(|| self.add_queue(db, key))?;
                self.add_entry(queue, claim, now)?
            }
        };
        let request = Request { entry, waiter, deadline, lease, limit: share_limit, previous: None, next: None };
        let request = self.add_request(request)?;
        Some(JoinOutcome { request, rejoined: known.is_some() })
    }

    /// Returns the first claim in line.
    pub fn first(&self, queue: QueueId) -> Option<&Claim> {
        self.first_entry(queue).and_then(|entry| self.entries.get(entry)).map(|entry| &entry.claim)
    }

    /// Removes and returns the first claim in line, to which the lock is now granted. Returns `None` if nobody is in
    /// line.
    pub fn grant_first(&mut self, queue: QueueId) -> Option<Grant> {
        let entry = self.first_entry(queue)?;
        let (db, key) = self.lock_of(queue)?;
        let granted = |request: Request| GrantedRequest { waiter: request.waiter, lease: request.lease };
        let waiters = self.remove_requests(entry, granted);
        let QueueEntry { claim, turn, since, .. } = self.remove_entry(entry)?;
        let mut grant = Grant { db, key, claim, longest_lease: None, turn, since, waiters };
        grant.merge_leases();
        Some(grant)
    }

    /// Removes a request, because its client left or is answered otherwise.
    ///
    /// If it was the last of its place, the place is kept until `keep_until`, or dropped if that is `None`. Otherwise its
    /// lease and its limit count no more, and a review of the lock may be due. Returns `None` if the request does not wait any more.
    pub fn withdraw_request(&mut self, request: RequestId, keep_until: Option<UnixMs>) -> Option<WaiterId> {
        let request = self.remove_request(request)?;
        if self.is_detached(request.entry) {
            match keep_until {
                Some(until) => self.mark_detached(request.entry, until),
                None => _ = self.remove_entry(request.entry),
            }
        } else {
            self.recompute_limit(request.entry, request.limit);
        }
        Some(request.waiter)
    }

    /// Removes the places of an owner in the queue of a lock, of all kinds but `kept`.
    ///
    /// Returns the requests that waited there, or `None` if the owner had no such place.
    pub fn withdraw_owner(&mut self, db: i32, key: &[u8], owner: &[u8], kept: Option<Kind>) -> Option<Vec<WaiterId>> {
        let mut waiters = None;
        while let Some(entry) = self.any_entry_of(db, key, owner, kept) {
            waiters.get_or_insert_with(Vec::new).extend(self.remove_requests(entry, |request| request.waiter));
            self.remove_entry(entry);
        }
        waiters
    }

    /// Drops the place of a claim, if it is away: the claim was granted without it.
    pub fn drop_detached_entry(&mut self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) {
        let entry = self.entry_of(db, key, kind, owner);
        if let Some(entry) = entry.filter(|&entry| self.is_detached(entry)) {
            self.remove_entry(entry);
        }
    }

    /// Restores the turn of a grant that was taken back. Its place is away until `until`, unless the claim waits again
    /// already.
    pub fn restore(&mut self, grant: Grant, until: UnixMs) {
        let Grant { db, key, claim, turn, since, .. } = grant;
        let entry = match self.entry_of(db, &key, claim.kind, &claim.owner) {
            Some(entry) => Some(entry),
            None => self.queue_of(db, &key).or_else(|| self.add_queue(db, &key)).and_then(|queue| {
                let entry = self.add_entry(queue, claim, since)?;
                self.mark_detached(entry, until);
                Some(entry)
            }),
        };
        if let Some(entry) = entry {
            self.move_to_turn(entry, turn);
        }
    }

    /// Drops every place that is away, one after the other.
    pub fn drop_detached_entries(&mut self) {
        self.drops_detached = self.detached.first().is_some();
    }

    /// Schedules a review of the lock for the end of its lease, or none if `lease_end` is `None`.
    pub fn review_at_lease_end(&mut self, queue: QueueId, lease_end: Option<UnixMs>) {
        self.set_review(queue, lease_end.map_or(NEVER, first_expired_ms), Cause::Expiry);
    }

    /// Schedules a review of the lock at `time`, and keeps the cause.
    pub fn review_at(&mut self, queue: QueueId, time: UnixMs) {
        self.set_review(queue, time, self.cause_of(queue));
    }

    /// Schedules a review of the lock at once, because something happened to its key.
    pub fn review_soon(&mut self, queue: QueueId, cause: Cause) {
        self.set_review(queue, UnixMs::MIN, cause);
    }

    /// Begins a review of all locks, one after the other.
    pub fn review_all(&mut self) {
        self.review.begin();
    }

    /// Begins a round over all queues, in which [`next_in_sweep`](Self::next_in_sweep) returns one after the other.
    pub fn begin_sweep(&mut self) {
        self.sweep.begin();
    }

    /// Returns whether a round is under way.
    pub fn is_sweeping(&self) -> bool {
        self.sweep.has_more()
    }

    /// Returns the next queue of the round, or `None` at its end.
    pub fn next_in_sweep(&mut self) -> Option<QueueId> {
        self.sweep.next(&self.queues)
    }

    /// Begins a walk over those who wait for a lock that is another server's now.
    /// [`next_aborted`](Self::next_aborted) returns them.
    pub fn abort(&mut self, queue: QueueId) {
        self.aborted.entry(queue).or_insert(Turn(u64::MIN));
    }

    /// Returns whether such a walk is under way.
    pub fn has_aborted(&self) -> bool {
        !self.aborted.is_empty()
    }

    /// Returns those who share the next place in such a walk, or nobody at its end. Returns `None` if there is no walk.
    pub fn next_aborted(&mut self) -> Option<Vec<WaiterId>> {
        let (&queue, &from) = self.aborted.first_key_value()?;
        // The slot of a queue that is gone may be another one's.
        let next = self.queues.get(queue).and_then(|_| self.order.first_from(queue, from));
        let Some((turn, entry)) = next else {
            self.aborted.remove(&queue);
            return Some(Vec::new());
        };
        self.aborted.insert(queue, Turn(turn.0.saturating_add(1)));
        let requests = self.entries.get(entry).into_iter().flat_map(|entry| self.requests_of(entry));
        Some(requests.map(|(_, request)| request.waiter).collect())
    }

    /// Returns the waiters of a lock, first in line first.
    pub fn waiters(&self, queue: QueueId) -> impl Iterator<Item = Waiter<'_>> {
        self.order.of(queue).filter_map(|entry| self.entries.get(entry)).flat_map(|entry| {
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

    fn add_queue(&mut self, db: i32, key: &[u8]) -> Option<QueueId> {
        let id = self.queues.insert(Queue::new(db, key.into()))?;
        self.by_lock.insert(LockName { db, key }, id, |id| self.queues.get(id).map(Queue::lock_name));
        Some(id)
    }

    fn set_review(&mut self, id: QueueId, time: UnixMs, cause: Cause) {
        // The review of a lock in the backlog looks at all that another would look at.
        let Some(queue) = self.queues.get_mut(id).filter(|queue| !queue.is_in_backlog) else { return };
        // Without requests there is nobody to serve.
        let time = if queue.requests == 0 { NEVER } else { time };
        self.reviews.reschedule(id, queue.review_at, time);
        queue.review_at = time;
        queue.cause = cause;
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
