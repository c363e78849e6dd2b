//! Places and the requests that share them.

use super::names::ClaimKey;
use super::types::{QueueEntry, QueueEntryId, QueueId, Request, RequestId, Turn};
use super::{Claim, WaitQueues, first_expired_ms};
use crate::core::timer_queue::NEVER;
use crate::core::{Cause, Kind, Limit, UnixMs, steps};

impl WaitQueues {
    /// Returns the place of a claim, present or away.
    pub(super) fn entry_of(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> Option<QueueEntryId> {
        let queue = self.queue_of(db, key)?;
        let claim = ClaimKey { queue, kind, owner };
        self.claims.find(claim, |id| self.entries.get(id).is_some_and(|entry| entry.claim_key() == claim))
    }

    /// Returns the first place of an owner, of any kind but `other_than`.
    pub(super) fn any_entry_of(
        &self,
        db: i32,
        key: &[u8],
        owner: &[u8],
        other_than: Option<Kind>,
    ) -> Option<QueueEntryId> {
        let queue = self.queue_of(db, key)?;
        let claim = ClaimKey { queue, kind: Kind::Mutex, owner }; // Of the hash, a kind is no part.
        let is_owners = |entry: &&QueueEntry| {
            entry.queue == queue && *entry.claim.owner == *owner && Some(entry.claim.kind) != other_than
        };
        self.claims.find_first(claim, |id| self.entries.get(id).filter(is_owners).map(|entry| entry.turn))
    }

    /// Adds a place with the last turn. It has no requests yet, so it is not in the line.
    pub(super) fn add_entry(&mut self, queue: QueueId, claim: Claim, since: UnixMs) -> Option<QueueEntryId> {
        let turn = Turn(self.next_turn);
        self.next_turn = self.next_turn.saturating_add(1);
        let is_share = claim.kind == Kind::Shared;
        let entry = QueueEntry { queue, turn, claim, since, latest: None, kept_until: NEVER };
        let id = self.entries.insert(entry)?;
        self.share_entries = self.share_entries.saturating_add(is_share.into());
        let key = self.entries.get(id).map(QueueEntry::claim_key)?;
        self.claims.insert(key, id, |id| self.entries.get(id).map(QueueEntry::claim_key));
        let queue = self.queues.get_mut(queue)?;
        queue.entries = queue.entries.saturating_add(1);
        Some(id)
    }

    /// Removes a place without requests, and the queue if that was its last place.
    pub(super) fn remove_entry(&mut self, id: QueueEntryId) -> Option<QueueEntry> {
        let entry = self.entries.remove(id)?;
        self.share_entries = self.share_entries.saturating_sub((entry.claim.kind == Kind::Shared).into());
        self.detached.reschedule(id, entry.kept_until, NEVER);
        self.remove_from_order(id, entry.queue, entry.turn);
        self.claims.remove(entry.claim_key(), id);
        let queue = self.queues.get_mut(entry.queue)?;
        queue.entries = queue.entries.saturating_sub(1);
        if queue.entries == 0 {
            let queue = self.queues.remove(entry.queue)?;
            self.by_lock.remove(queue.lock_name(), entry.queue);
        }
        Some(entry)
    }

    /// Makes room for one more place below `limit`, by dropping a place that is away.
    pub(super) fn free_capacity(&mut self, limit: usize) {
        if self.entries.len() >= limit {
            if let Some(entry) = self.detached.first() {
                self.remove_entry(entry);
            }
        }
    }

    /// Returns whether a place has no requests.
    pub(super) fn is_detached(&self, id: QueueEntryId) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.latest.is_none())
    }

    /// Removes a place that has lost its last request from the line, and keeps it until `until`.
    pub(super) fn mark_detached(&mut self, id: QueueEntryId, until: UnixMs) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        self.detached.reschedule(id, std::mem::replace(&mut entry.kept_until, until), until);
        let (queue, turn) = (entry.queue, entry.turn);
        self.remove_from_order(id, queue, turn);
    }

    /// Moves a place to another turn.
    pub(super) fn move_to_turn(&mut self, id: QueueEntryId, turn: Turn) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let previous = std::mem::replace(&mut entry.turn, turn);
        if self.order.remove(entry.queue, previous, id) {
            self.order.insert(entry.queue, turn, id);
        }
    }

    /// Merges the limit of one more request into that of its place: the smallest counts. A place that is away takes the new
    /// request's, because the earlier requests have left.
    fn merge_limit(&mut self, id: QueueEntryId, limit: Option<Limit>) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let smallest = if entry.latest.is_none() { limit } else { entry.claim.limit.into_iter().chain(limit).min() };
        entry.claim.limit = smallest;
    }

    /// Merges the limits of the requests that share a place again, after one with the limit `withdrawn` has left. If the limit
    /// has risen, the first waiter may have a share now, so the lock is reviewed.
    ///
    /// Copies of one request are usually equal: then the first of them ends the search. At worst it visits all, of which
    /// there are [`MAX_COPIES`](super::MAX_COPIES).
    pub(super) fn recompute_limit(&mut self, id: QueueEntryId, withdrawn: Option<Limit>) {
        let Some(entry) = self.entries.get(id) else { return };
        if withdrawn.is_none() || withdrawn != entry.claim.limit {
            return;
        }
        let (queue, mut smallest) = (entry.queue, None);
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
            self.set_review(queue, UnixMs::MIN, Cause::Other);
        }
    }

    /// Adds a request to a place, which returns to its turn in the line if it was away.
    pub(super) fn add_request(&mut self, request: Request) -> Option<RequestId> {
        let (entry_id, deadline) = (request.entry, request.deadline);
        self.merge_limit(entry_id, request.limit);
        let entry = self.entries.get_mut(entry_id)?;
        let request = Request { previous: entry.latest, next: None, ..request };
        let id = self.requests.insert(request)?;
        self.detached.reschedule(entry_id, std::mem::replace(&mut entry.kept_until, NEVER), NEVER);
        if let Some(previous) = entry.latest.replace(id).and_then(|previous| self.requests.get_mut(previous)) {
            previous.next = Some(id);
        }
        let queue = self.queues.get_mut(entry.queue)?;
        self.order.insert(entry.queue, entry.turn, entry_id);
        queue.requests = queue.requests.saturating_add(1);
        self.deadlines.insert(entry.queue, queue, first_expired_ms(deadline), id);
        Some(id)
    }

    /// Removes a request. Its place keeps its limit.
    pub(super) fn remove_request(&mut self, id: RequestId) -> Option<Request> {
        let request = self.requests.remove(id)?;
        if let Some(previous) = request.previous.and_then(|id| self.requests.get_mut(id)) {
            previous.next = request.next;
        }
        if let Some(next) = request.next.and_then(|id| self.requests.get_mut(id)) {
            next.previous = request.previous;
        }
        let entry = self.entries.get_mut(request.entry)?;
        if entry.latest == Some(id) {
            entry.latest = request.previous;
        }
        let queue = self.queues.get_mut(entry.queue)?;
        queue.requests = queue.requests.saturating_sub(1);
        self.deadlines.remove(entry.queue, queue, first_expired_ms(request.deadline), id);
        Some(request)
    }

    /// Removes all requests of a place. Returns what `of` makes of each.
    pub(super) fn remove_requests<T>(&mut self, id: QueueEntryId, of: impl Fn(Request) -> T) -> Vec<T> {
        let ids: Vec<_> = match self.entries.get(id) {
            Some(entry) => self.requests_of(entry).map(|(id, _)| id).collect(),
            None => Vec::new(),
        };
        ids.into_iter().filter_map(|id| self.remove_request(id)).map(of).collect()
    }

    /// Returns the requests that share a place, the latest first.
    pub(super) fn requests_of<'r>(
        &'r self,
        entry: &QueueEntry,
    ) -> impl Iterator<Item = (RequestId, &'r Request)> + use<'r> {
        let find = |id: Option<RequestId>| id.and_then(|id| self.requests.get(id).map(|request| (id, request)));
        std::iter::successors(find(entry.latest), move |(_, request)| find(request.previous))
    }

    /// Removes a place from the line. If that leaves no requests, there is nobody to serve, and no review. If a share is
    /// first in line now, there may be room for it beside those that are held.
    fn remove_from_order(&mut self, entry: QueueEntryId, id: QueueId, turn: Turn) {
        let was_attached = self.order.remove(id, turn, entry);
        let is_shares_turn = || self.first(id).is_some_and(|claim| claim.kind == Kind::Shared);
        if was_attached && self.share_entries > 0 && is_shares_turn() {
            self.set_review(id, UnixMs::MIN, Cause::Other);
        }
        if let Some(queue) = self.queues.get_mut(id).filter(|queue| queue.requests == 0) {
            self.reviews.reschedule(id, std::mem::replace(&mut queue.review_at, NEVER), NEVER);
        }
    }
}
