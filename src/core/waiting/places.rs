//! Places and the requests that share them: how they come, leave, are kept and called back.

use std::rc::Rc;

use super::types::{ConnectionId, Place, PlaceId, PlaceKey, QueueId, Request, RequestId, Ticket};
use super::{Claim, WaitingRoom, passed};
use crate::core::{Kind, Lease, UnixMs};

impl WaitingRoom {
    /// The place of a claim, present or away.
    pub(super) fn place_of(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> Option<PlaceId> {
        let queue = self.queue_of(db, key)?;
        let place_key = PlaceKey { queue, kind, owner: owner.into() };
        self.by_claim.as_ref()?.get(&place_key).copied()
    }

    /// A new place at the end of the line. It has no request yet, so it is not in the line yet.
    pub(super) fn open_place(&mut self, queue: QueueId, claim: Claim, since: UnixMs) -> Option<PlaceId> {
        let key = PlaceKey { queue, kind: claim.kind, owner: Rc::clone(&claim.owner) };
        let ticket = Ticket(self.next_ticket);
        self.next_ticket = self.next_ticket.saturating_add(1);
        let place = Place { queue, ticket, claim, since, latest: None, kept_until: None };
        let id = self.places.insert(place)?;
        self.by_claim.get_or_insert_default().insert(key, id);
        let queue = self.queues.get_mut(queue)?;
        queue.places = queue.places.saturating_add(1);
        Some(id)
    }

    /// Takes a place without requests out, and the queue with it if it was the last one.
    pub(super) fn close_place(&mut self, id: PlaceId) -> Option<Place> {
        let place = self.places.remove(id)?;
        self.away.reschedule(id, place.kept_until, None);
        self.step_out(place.queue, place.ticket);
        if let Some(places) = &mut self.by_claim {
            let (kind, owner) = (place.claim.kind, Rc::clone(&place.claim.owner));
            places.remove(&PlaceKey { queue: place.queue, kind, owner });
            if places.is_empty() {
                self.by_claim = None; // A rush of waiters leaves nothing behind.
            }
        }
        let queue = self.queues.get_mut(place.queue)?;
        queue.places = queue.places.saturating_sub(1);
        if queue.places == 0 {
            let queue = self.queues.remove(place.queue)?;
            self.index.remove(queue.db, &queue.key);
        }
        Some(place)
    }

    /// Makes room for one more place below `limit`, if one that is away can go.
    pub(super) fn make_room(&mut self, limit: usize) {
        if self.places.len() >= limit {
            if let Some(place) = self.away.first() {
                self.close_place(place);
            }
        }
    }

    /// Keeps a place that has lost its last request, out of the line.
    pub(super) fn send_away(&mut self, id: PlaceId, until: UnixMs) {
        let Some(place) = self.places.get_mut(id) else { return };
        self.away.reschedule(id, place.kept_until.replace(until), Some(until));
        let (queue, ticket) = (place.queue, place.ticket);
        self.step_out(queue, ticket);
    }

    /// Gives a place another turn.
    pub(super) fn move_to_turn(&mut self, id: PlaceId, ticket: Ticket) {
        let Some(place) = self.places.get_mut(id) else { return };
        let earlier = std::mem::replace(&mut place.ticket, ticket);
        if let Some(queue) = self.queues.get_mut(place.queue) {
            if queue.line.remove(&earlier).is_some() {
                queue.line.insert(ticket, id);
            }
        }
    }

    /// A repeated claim lengthens the lease that will be granted, or leaves it: as with a lock that is held.
    pub(super) fn lengthen(&mut self, id: PlaceId, lease: Option<Lease>) {
        if let Some(place) = self.places.get_mut(id) {
            place.claim.lease = place.claim.lease.map(|present| lease.map_or(present, |lease| lease.max(present)));
        }
    }

    /// Lets a connection wait at a place, which takes up its turn in the line if it was away.
    pub(super) fn add_request(
        &mut self,
        place_id: PlaceId,
        connection: ConnectionId,
        deadline: Option<UnixMs>,
    ) -> Option<RequestId> {
        let place = self.places.get_mut(place_id)?;
        let request = Request { place: place_id, connection, deadline, earlier: place.latest, later: None };
        let id = self.requests.insert(request)?;
        self.away.reschedule(place_id, place.kept_until.take(), None);
        if let Some(earlier) = place.latest.replace(id).and_then(|earlier| self.requests.get_mut(earlier)) {
            earlier.later = Some(id);
        }
        let queue = self.queues.get_mut(place.queue)?;
        queue.line.insert(place.ticket, place_id);
        queue.requests = queue.requests.saturating_add(1);
        self.deadlines.reschedule(id, None, deadline.map(passed));
        Some(id)
    }

    /// Takes one request out of its place, which stays as it is.
    pub(super) fn take_request(&mut self, id: RequestId) -> Option<Request> {
        let request = self.requests.remove(id)?;
        self.deadlines.reschedule(id, request.deadline.map(passed), None);
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
        Some(request)
    }

    /// Takes all requests out of a place.
    pub(super) fn take_requests(&mut self, id: PlaceId) -> Vec<ConnectionId> {
        let ids: Vec<_> = match self.places.get(id) {
            Some(place) => self.requests_of(place).map(|(id, _)| id).collect(),
            None => Vec::new(),
        };
        ids.into_iter().filter_map(|id| self.take_request(id)).map(|request| request.connection).collect()
    }

    /// The requests that share a place, the latest first.
    pub(super) fn requests_of<'r>(&'r self, place: &Place) -> impl Iterator<Item = (RequestId, &'r Request)> + use<'r> {
        let find = |id: Option<RequestId>| id.and_then(|id| self.requests.get(id).map(|request| (id, request)));
        std::iter::successors(find(place.latest), move |(_, request)| find(request.earlier))
    }

    /// Takes a turn out of the line. With nobody left in it there is nobody to serve, and nothing to look at.
    fn step_out(&mut self, id: QueueId, ticket: Ticket) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        queue.line.remove(&ticket);
        if queue.line.is_empty() {
            self.reviews.reschedule(id, queue.review_at.take(), None);
        }
    }
}
