//! The queues: the waiters of each lock, their order and their deadlines.
//!
//! A **queue entry** is a claim on the lock with a turn. A **request** is a connection that waits for the reply until its own
//! deadline. Requests with the same claim share an entry.
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

use super::record::{QueueEntry, Record, RecordId};
use super::reviews::AT_ONCE;
use super::types::{
    Claim, Grant, JoinOutcome, JoinRequest, QueueEntryId, RequestId, Turn, Waiter, WaiterId, WaitingRequest,
};
use super::{Locks, first_expired_ms};
use crate::core::limits::MAX_COPIES;
use crate::core::tables::NEVER;
use crate::core::{Cause, Kind, OrBug, UnixMs};

impl Locks {
    /// Returns the event that made the lock free, or is expected to.
    pub fn cause_of(&self, queue: RecordId) -> Cause {
        self.queue(queue).map_or(Cause::Other, |queue| queue.cause)
    }

    pub fn waiter_count_of(&self, queue: RecordId) -> usize {
        self.queue(queue).map_or(0, |queue| queue.requests as usize)
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
    pub fn origin_of(&self, request: RequestId) -> Option<(&Record, &Claim)> {
        let request = self.requests.get(request)?;
        let entry = self.entries.get(request.entry).or_bug("a request has no entry")?;
        Some((self.records.get(entry.record).or_bug("an entry has no record")?, &entry.claim))
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
                let queue = self.record_for(db, key)?;
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
    pub fn first(&self, queue: RecordId) -> Option<&Claim> {
        let first = self.entries.get(self.first_entry(queue)?).or_bug("the first entry of a queue does not exist")?;
        debug_assert_eq!(first.record, queue, "the first entry is in another queue");
        Some(&first.claim)
    }

    /// Returns what [`grant_first`](Self::grant_first) would return, and leaves it in the queue.
    pub fn first_grant(&self, queue: RecordId) -> Option<Grant> {
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
            let queue = self.record_for(db, &key)?;
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
    pub fn review_at_lease_end(&mut self, queue: RecordId, lease_end: Option<UnixMs>) {
        self.set_review(queue, lease_end.map_or(NEVER, first_expired_ms), Cause::Expiry);
    }

    /// Schedules a review of the lock at `time` with the same cause.
    pub fn review_at(&mut self, queue: RecordId, time: UnixMs) {
        self.set_review(queue, time, self.cause_of(queue));
    }

    /// Schedules an immediate review of the lock, because its key has changed.
    pub fn review_soon(&mut self, queue: RecordId, cause: Cause) {
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
    pub fn next_in_sweep(&mut self) -> Option<RecordId> {
        self.sweep.next(&self.records)
    }

    /// Begins to abort the waits for a lock whose slot has moved. [`next_aborted`](Self::next_aborted) returns the waiters.
    pub fn abort(&mut self, queue: RecordId) {
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
        let next = self.queue(queue).and_then(|_| self.order.from(queue, from).next());
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
    pub fn waiters(&self, queue: RecordId) -> impl Iterator<Item = Waiter<'_>> {
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

    pub(super) fn first_entry(&self, queue: RecordId) -> Option<QueueEntryId> {
        self.order.of(queue).next()
    }
}
