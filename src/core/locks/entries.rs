//! Queue entries and the requests that share them.

use std::hash::BuildHasher;

use super::record::{QueueEntry, RecordId};
use super::reviews::AT_ONCE;
use super::types::{QueueEntryId, RequestId, Turn, WaitingRequest};
use super::{Claim, Locks, first_expired_ms, queue_in};
use crate::core::tables::NEVER;
use crate::core::{Cause, Kind, Limit, OrBug, UnixMs, bug, check, steps};

impl Locks {
    /// Returns the entry of a claim, attached or detached.
    pub(super) fn entry_of(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> Option<QueueEntryId> {
        let queue = self.record_of(db, key)?;
        let is_claim = |entry: &QueueEntry| entry.owner_key() == (queue, owner) && entry.claim.kind == kind;
        self.claims.find((queue, owner), |id| self.entries.get(*id).is_some_and(is_claim)).copied()
    }

    /// Returns whether a claim has a place in the queue of a lock, which may be kept.
    pub fn has_place(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> bool {
        self.entry_of(db, key, kind, owner).is_some()
    }

    /// Returns the entry of an owner with the lowest turn, of any kind but `kept`.
    pub(super) fn any_entry_of(&self, db: i32, key: &[u8], owner: &[u8], kept: Option<Kind>) -> Option<QueueEntryId> {
        let queue = self.record_of(db, key)?;
        let entries = self.claims.candidates((queue, owner)).filter_map(|&id| Some((id, self.entries.get(id)?)));
        let others = entries.filter(|(_, it)| it.owner_key() == (queue, owner) && Some(it.claim.kind) != kept);
        others.min_by_key(|(_, entry)| entry.turn).map(|(id, _)| id)
    }

    /// Adds an entry with the last turn. It has no requests yet, so it is not in the queue order.
    ///
    /// Returns `None` if there are almost 2^32 entries already.
    pub(super) fn add_entry(&mut self, queue: RecordId, claim: Claim, since: UnixMs) -> Option<QueueEntryId> {
        let turn = Turn(self.next_turn);
        debug_assert!(self.next_turn < u64::MAX, "turns rise");
        self.next_turn = self.next_turn.saturating_add(1);
        let is_share = claim.kind == Kind::Shared;
        let entry = QueueEntry { record: queue, turn, claim, since, latest: None, kept_until: NEVER };
        let id = self.entries.insert(entry)?;
        self.share_entries = self.share_entries.saturating_add(is_share.into());
        self.claims.insert(id, |hasher, id| {
            let entry = self.entries.get(*id).or_bug("a claim in the index has no entry");
            entry.map_or(0, |entry| hasher.hash_one(entry.owner_key()))
        });
        let queue = queue_in(&mut self.records, queue).or_bug("a new entry has no queue")?;
        queue.entries = queue.entries.saturating_add(1);
        Some(id)
    }

    /// Removes an entry without requests, and its queue if that was the last entry.
    pub(super) fn remove_entry(&mut self, id: QueueEntryId) -> Option<QueueEntry> {
        let entry = self.entries.remove(id).or_bug("an entry to remove does not exist")?;
        check(entry.latest.is_none(), "an entry is removed before its requests");
        let shares = usize::from(entry.claim.kind == Kind::Shared);
        debug_assert!(self.share_entries >= shares, "an entry of a share was not counted");
        self.share_entries = self.share_entries.saturating_sub(shares);
        self.detached.reschedule(id, entry.kept_until, NEVER);
        self.remove_from_order(id, entry.record, entry.turn);
        let claim = self.claims.remove(entry.owner_key(), |&other| other == id);
        check(claim.is_some(), "an entry has no claim in the index");
        let queue = queue_in(&mut self.records, entry.record).or_bug("an entry had no queue")?;
        debug_assert!(queue.entries > 0, "an entry was not counted");
        queue.entries = queue.entries.saturating_sub(1);
        if queue.entries == 0 {
            debug_assert_eq!(queue.requests, 0, "a queue without entries has requests");
            debug_assert_eq!(queue.review_at, NEVER, "a queue without entries has a review");
            debug_assert_eq!(queue.next_time_out, NEVER, "a queue without entries has deadlines");
            self.drop_if_unused(entry.record);
        }
        Some(entry)
    }

    /// Drops a detached entry if there are `limit` entries or more, so that one can be added.
    pub(super) fn free_capacity(&mut self, limit: usize) {
        if self.entries.len() >= limit {
            if let Some(entry) = self.detached.first() {
                self.remove_entry(entry);
            }
        }
    }

    pub(super) fn is_detached(&self, id: QueueEntryId) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.latest.is_none())
    }

    /// Removes an entry without requests from the queue order, and keeps it until `until`.
    pub(super) fn mark_detached(&mut self, id: QueueEntryId, until: UnixMs) {
        let Some(entry) = self.entries.get_mut(id) else { return bug("an entry to detach does not exist") };
        debug_assert!(entry.latest.is_none(), "a detached entry has requests");
        debug_assert_eq!(entry.kept_until, NEVER, "an entry is detached twice");
        debug_assert!(until < NEVER, "a detached entry has no end");
        self.detached.reschedule(id, std::mem::replace(&mut entry.kept_until, until), until);
        let (queue, turn) = (entry.record, entry.turn);
        self.remove_from_order(id, queue, turn);
    }

    pub(super) fn move_to_turn(&mut self, id: QueueEntryId, turn: Turn) {
        debug_assert!(turn.0 < self.next_turn, "a restored turn was never given");
        let Some(entry) = self.entries.get_mut(id) else { return bug("an entry to move does not exist") };
        let previous = std::mem::replace(&mut entry.turn, turn);
        if self.order.remove(entry.record, previous, id) {
            let is_new = self.order.insert(entry.record, turn, id);
            debug_assert!(is_new, "two entries have one turn");
        }
    }

    /// Recomputes the limit of an entry after a request with the limit `withdrawn` was removed. If the limit rises, the first
    /// waiter may be granted a share, so the lock is reviewed.
    ///
    /// Copies of one request usually have one limit, and the first ends the search. At worst it visits all of the entry's
    /// requests.
    pub(super) fn recompute_limit(&mut self, id: QueueEntryId, withdrawn: Option<Limit>) {
        let Some(entry) = self.entries.get(id) else { return bug("a removed request had no entry") };
        if withdrawn.is_none() || withdrawn != entry.claim.limit {
            return;
        }
        let (queue, mut smallest) = (entry.record, None);
        for (_, request) in self.requests_of(entry) {
            steps::count();
            if request.limit == withdrawn {
                return;
            }
            smallest = smallest.into_iter().chain(request.limit).min();
        }
        if let Some(entry) = self.entries.get_mut(id) {
            entry.claim.limit = smallest;
        }
        if self.first_entry(queue) == Some(id) {
            self.set_review(queue, AT_ONCE, Cause::Other);
        }
    }

    /// Adds a request to an entry, and attaches the entry at its turn if it was detached. The smallest limit counts.
    pub(super) fn add_request(&mut self, request: WaitingRequest) -> Option<RequestId> {
        let (entry_id, deadline) = (request.entry, request.deadline);
        let entry = self.entries.get_mut(entry_id).or_bug("a new request has no entry")?;
        let was_attached = entry.latest.is_some();
        let other_limit = entry.claim.limit.filter(|_| was_attached);
        entry.claim.limit = other_limit.into_iter().chain(request.limit).min();
        debug_assert!(!was_attached || entry.kept_until == NEVER, "an attached entry is to be dropped");
        let request = WaitingRequest { previous: entry.latest, next: None, ..request };
        let id = self.requests.insert(request)?;
        self.detached.reschedule(entry_id, std::mem::replace(&mut entry.kept_until, NEVER), NEVER);
        if let Some(previous) = entry.latest.replace(id) {
            let previous = self.requests.get_mut(previous).or_bug("the latest request of an entry does not exist");
            previous.into_iter().for_each(|previous| previous.next = Some(id));
        }
        let queue = queue_in(&mut self.records, entry.record).or_bug("a new request has no queue")?;
        let is_new = self.order.insert(entry.record, entry.turn, entry_id);
        check(is_new != was_attached, "the queue order does not have exactly the attached entries");
        queue.requests = queue.requests.saturating_add(1);
        self.deadlines.insert(entry.record, queue, first_expired_ms(deadline), id);
        Some(id)
    }

    /// Removes a request, if it exists. Its entry keeps its limit.
    pub(super) fn remove_request(&mut self, id: RequestId) -> Option<WaitingRequest> {
        let request = self.requests.remove(id)?;
        if let Some(previous) = request.previous {
            let previous = self.requests.get_mut(previous).or_bug("the request before this one does not exist");
            previous.into_iter().for_each(|previous| previous.next = request.next);
        }
        if let Some(next) = request.next {
            let next = self.requests.get_mut(next).or_bug("the request after this one does not exist");
            next.into_iter().for_each(|next| next.previous = request.previous);
        }
        let entry = self.entries.get_mut(request.entry).or_bug("a request had no entry")?;
        debug_assert_eq!(entry.latest == Some(id), request.next.is_none(), "the latest request has no next one");
        if entry.latest == Some(id) {
            entry.latest = request.previous;
        }
        let queue = queue_in(&mut self.records, entry.record).or_bug("a request had no queue")?;
        debug_assert!(queue.requests > 0, "a request was not counted");
        queue.requests = queue.requests.saturating_sub(1);
        self.deadlines.remove(entry.record, queue, first_expired_ms(request.deadline), id);
        Some(request)
    }

    /// Returns the requests that share an entry, the latest first.
    pub(super) fn requests_of<'r>(
        &'r self,
        entry: &QueueEntry,
    ) -> impl Iterator<Item = (RequestId, &'r WaitingRequest)> + use<'r> {
        let find = |id: Option<RequestId>| id.and_then(|id| self.requests.get(id).map(|request| (id, request)));
        std::iter::successors(find(entry.latest), move |(_, request)| find(request.previous))
    }

    /// Removes an entry from the queue order, if it is in it.
    ///
    /// Without requests, the queue needs no review. If a share is first now, the lock is reviewed, because it may have capacity.
    fn remove_from_order(&mut self, entry: QueueEntryId, id: RecordId, turn: Turn) {
        let was_attached = self.order.remove(id, turn, entry);
        let is_shares_turn = || self.first(id).is_some_and(|claim| claim.kind == Kind::Shared);
        if was_attached && self.share_entries > 0 && is_shares_turn() {
            self.set_review(id, AT_ONCE, Cause::Other);
        }
        if let Some(queue) = queue_in(&mut self.records, id).filter(|queue| queue.requests == 0) {
            self.reviews.schedule(id, queue, NEVER);
        }
    }
}
