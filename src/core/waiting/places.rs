//! Places and the requests that share them.

use super::names::ClaimKey;
use super::types::{Place, PlaceId, QueueId, Request, RequestId, Turn};
use super::{Claim, WaitQueues, passed};
use crate::core::timer_queue::NEVER;
use crate::core::{Cause, Kind, Limit, UnixMs, steps};

impl WaitQueues {
    /// Returns the place of a claim, present or away.
    pub(super) fn place_of(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> Option<PlaceId> {
        let queue = self.queue_of(db, key)?;
        let claim = ClaimKey { queue, kind, owner };
        self.claims.find(claim, |id| self.places.get(id).is_some_and(|place| place.claim_key() == claim))
    }

    /// Returns the first place of an owner, of any kind but `other_than`.
    pub(super) fn any_place_of(&self, db: i32, key: &[u8], owner: &[u8], other_than: Option<Kind>) -> Option<PlaceId> {
        let queue = self.queue_of(db, key)?;
        let claim = ClaimKey { queue, kind: Kind::Mutex, owner }; // Of the hash, a kind is no part.
        let is_owners = |place: &&Place| {
            place.queue == queue && *place.claim.owner == *owner && Some(place.claim.kind) != other_than
        };
        self.claims.find_first(claim, |id| self.places.get(id).filter(is_owners).map(|place| place.turn))
    }

    /// Adds a place with the last turn. It has no requests yet, so it is not in the line.
    pub(super) fn add_place(&mut self, queue: QueueId, claim: Claim, since: UnixMs) -> Option<PlaceId> {
        let turn = Turn(self.next_turn);
        self.next_turn = self.next_turn.saturating_add(1);
        let is_share = claim.kind == Kind::Shared;
        let place = Place { queue, turn, claim, since, latest: None, kept_until: NEVER };
        let id = self.places.insert(place)?;
        self.share_places = self.share_places.saturating_add(is_share.into());
        let key = self.places.get(id).map(Place::claim_key)?;
        self.claims.insert(key, id, |id| self.places.get(id).map(Place::claim_key));
        let queue = self.queues.get_mut(queue)?;
        queue.places = queue.places.saturating_add(1);
        Some(id)
    }

    /// Removes a place without requests, and the queue if that was its last place.
    pub(super) fn remove_place(&mut self, id: PlaceId) -> Option<Place> {
        let place = self.places.remove(id)?;
        self.share_places = self.share_places.saturating_sub((place.claim.kind == Kind::Shared).into());
        self.away.reschedule(id, place.kept_until, NEVER);
        self.leave_line(id, place.queue, place.turn);
        self.claims.remove(place.claim_key(), id);
        let queue = self.queues.get_mut(place.queue)?;
        queue.places = queue.places.saturating_sub(1);
        if queue.places == 0 {
            let queue = self.queues.remove(place.queue)?;
            self.by_lock.remove(queue.lock_name(), place.queue);
        }
        Some(place)
    }

    /// Makes room for one more place below `limit`, by dropping a place that is away.
    pub(super) fn make_room(&mut self, limit: usize) {
        if self.places.len() >= limit {
            if let Some(place) = self.away.first() {
                self.remove_place(place);
            }
        }
    }

    /// Returns whether a place has no requests.
    pub(super) fn is_away(&self, id: PlaceId) -> bool {
        self.places.get(id).is_some_and(|place| place.latest.is_none())
    }

    /// Removes a place that has lost its last request from the line, and keeps it until `until`.
    pub(super) fn mark_away(&mut self, id: PlaceId, until: UnixMs) {
        let Some(place) = self.places.get_mut(id) else { return };
        self.away.reschedule(id, std::mem::replace(&mut place.kept_until, until), until);
        let (queue, turn) = (place.queue, place.turn);
        self.leave_line(id, queue, turn);
    }

    /// Moves a place to another turn.
    pub(super) fn move_to_turn(&mut self, id: PlaceId, turn: Turn) {
        let Some(place) = self.places.get_mut(id) else { return };
        let earlier = std::mem::replace(&mut place.turn, turn);
        if self.lines.remove(place.queue, earlier, id) {
            self.lines.insert(place.queue, turn, id);
        }
    }

    /// Merges the limit of one more request into that of its place: the smallest counts. A place that is away takes the new
    /// request's, because the earlier requests have left.
    fn merge_limit(&mut self, id: PlaceId, limit: Option<Limit>) {
        let Some(place) = self.places.get_mut(id) else { return };
        let smallest = if place.latest.is_none() { limit } else { place.claim.limit.into_iter().chain(limit).min() };
        place.claim.limit = smallest;
    }

    /// Merges the limits of the requests that share a place again, after one with the limit `gone` has left. If the limit
    /// has risen, the first waiter may have a share now, so the lock is reviewed.
    ///
    /// Copies of one request are usually equal: then the first of them ends the search. At worst it visits all, of which
    /// there are [`MAX_COPIES`](super::MAX_COPIES).
    pub(super) fn merge_limits_again(&mut self, id: PlaceId, gone: Option<Limit>) {
        let Some(place) = self.places.get(id) else { return };
        if gone.is_none() || gone != place.claim.limit {
            return;
        }
        let (queue, mut smallest) = (place.queue, None);
        for (_, request) in self.requests_of(place) {
            steps::count();
            if request.limit == gone {
                return;
            }
            smallest = smallest.into_iter().chain(request.limit).min();
        }
        if let Some(place) = self.places.get_mut(id) {
            place.claim.limit = smallest;
        }
        if self.first_place(queue) == Some(id) {
            self.set_review(queue, UnixMs::MIN, Cause::Other);
        }
    }

    /// Adds a request to a place, which returns to its turn in the line if it was away.
    pub(super) fn add_request(&mut self, request: Request) -> Option<RequestId> {
        let (place_id, deadline) = (request.place, request.deadline);
        self.merge_limit(place_id, request.limit);
        let place = self.places.get_mut(place_id)?;
        let request = Request { earlier: place.latest, later: None, ..request };
        let id = self.requests.insert(request)?;
        self.away.reschedule(place_id, std::mem::replace(&mut place.kept_until, NEVER), NEVER);
        if let Some(earlier) = place.latest.replace(id).and_then(|earlier| self.requests.get_mut(earlier)) {
            earlier.later = Some(id);
        }
        let queue = self.queues.get_mut(place.queue)?;
        self.lines.insert(place.queue, place.turn, place_id);
        queue.requests = queue.requests.saturating_add(1);
        self.deadlines.insert(place.queue, queue, passed(deadline), id);
        Some(id)
    }

    /// Removes a request. Its place keeps its limit.
    pub(super) fn remove_request(&mut self, id: RequestId) -> Option<Request> {
        let request = self.requests.remove(id)?;
        if let Some(earlier) = request.earlier.and_then(|id| self.requests.get_mut(id)) {
            earlier.later = request.later;
        }
        if let Some(later) = request.later.and_then(|id| self.requests.get_mut(id)) {
            later.earlier = request.earlier;
        }
        let place = self.places.get_mut(request.place)?;
        if place.latest == Some(id) {
            place.latest = request.earlier;
        }
        let queue = self.queues.get_mut(place.queue)?;
        queue.requests = queue.requests.saturating_sub(1);
        self.deadlines.remove(place.queue, queue, passed(request.deadline), id);
        Some(request)
    }

    /// Removes all requests of a place. Returns what `of` makes of each.
    pub(super) fn remove_requests<T>(&mut self, id: PlaceId, of: impl Fn(Request) -> T) -> Vec<T> {
        let ids: Vec<_> = match self.places.get(id) {
            Some(place) => self.requests_of(place).map(|(id, _)| id).collect(),
            None => Vec::new(),
        };
        ids.into_iter().filter_map(|id| self.remove_request(id)).map(of).collect()
    }

    /// Returns the requests that share a place, the latest first.
    pub(super) fn requests_of<'r>(&'r self, place: &Place) -> impl Iterator<Item = (RequestId, &'r Request)> + use<'r> {
        let find = |id: Option<RequestId>| id.and_then(|id| self.requests.get(id).map(|request| (id, request)));
        std::iter::successors(find(place.latest), move |(_, request)| find(request.earlier))
    }

    /// Removes a place from the line. If that leaves no requests, there is nobody to serve, and no review. If a share is
    /// first in line now, there may be room for it beside those that are held.
    fn leave_line(&mut self, place: PlaceId, id: QueueId, turn: Turn) {
        let was_in_line = self.lines.remove(id, turn, place);
        let is_shares_turn = || self.first(id).is_some_and(|claim| claim.kind == Kind::Shared);
        if was_in_line && self.share_places > 0 && is_shares_turn() {
            self.set_review(id, UnixMs::MIN, Cause::Other);
        }
        if let Some(queue) = self.queues.get_mut(id).filter(|queue| queue.requests == 0) {
            self.reviews.reschedule(id, std::mem::replace(&mut queue.review_at, NEVER), NEVER);
        }
    }
}
