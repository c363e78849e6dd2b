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
mod line;
mod names;
mod places;
mod types;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::handle_table::HandleTable;
use super::slab::Slab;
use super::timer_queue::{NEVER, TimerQueue};
use super::{Arena, Cause, Kind, Round, UnixMs};
use deadlines::Deadlines;
use line::Lines;
use names::LockName;
pub use types::{
    Claim, Contended, Contention, Due, DueFilter, Grant, GrantedRequest, Join, Joined, Queue, QueueId, Request,
    RequestId, Turn, Waiter, WaiterId,
};
use types::{Place, PlaceId};

/// All queues of the server.
pub struct WaitQueues {
    by_lock: HandleTable<QueueId>,
    /// The queue that was looked up last: the steps of one command ask for the same again and again.
    latest_found: Cell<Option<QueueId>>,
    queues: Arena<Queue>,
    places: Slab<Place>,
    /// The number of places for shares.
    share_places: usize,
    requests: Arena<Request>,
    claims: HandleTable<PlaceId>,
    lines: Lines,
    next_turn: u64,
    reviews: TimerQueue<QueueId>,
    deadlines: Deadlines,
    /// Places that are away, by the time when they are dropped.
    away: TimerQueue<PlaceId>,
    /// Queues whose review has stopped with waiters left that can be granted the lock, in the order in which their reviews go on.
    backlog: VecDeque<QueueId>,
    /// A running review of all queues.
    review: Round,
    /// A running round over all queues.
    round: Round,
    /// Queues of locks that are another server's, and from which turn on their places are to be returned.
    lost: BTreeMap<QueueId, Turn>,
    /// Which of the sources of due work is asked first.
    next_source: usize,
    /// Whether all places that are away are to be dropped.
    drops_away: bool,
}

/// The number of requests that share a place at most. All of them are answered in one step.
const MAX_COPIES: usize = 1000;

/// Returns the first millisecond at which `time` has passed. The server counts like this, too: a key that expires at t
/// still exists at t.
fn passed(time: UnixMs) -> UnixMs {
    time.saturating_add(1)
}

impl WaitQueues {
    pub const fn new() -> Self {
        Self {
            by_lock: HandleTable::new(),
            latest_found: Cell::new(None),
            queues: Arena::new(),
            places: Slab::new(),
            share_places: 0,
            requests: Arena::new(),
            claims: HandleTable::new(),
            lines: Lines::new(),
            next_turn: 0,
            reviews: TimerQueue::new(),
            deadlines: Deadlines::new(),
            away: TimerQueue::new(),
            backlog: VecDeque::new(),
            review: Round::END,
            round: Round::END,
            lost: BTreeMap::new(),
            next_source: 0,
            drops_away: false,
        }
    }

    /// Returns the number of requests that wait, over all locks.
    pub fn waiter_count(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether no queue has a place, present or away.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the number of entries of all kinds, which is 0 when everybody has left.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        let tables = [self.by_lock.len(), self.queues.len(), self.places.len(), self.requests.len(), self.claims.len()];
        let orders = [
            self.lines.place_count(),
            self.reviews.entry_count(),
            self.deadlines.entry_count(),
            self.away.entry_count(),
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
        let found = self.latest_found.get().filter(|&id| has_name(id)).or_else(|| self.by_lock.find(name, has_name))?;
        self.latest_found.set(Some(found));
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
    pub fn has_room(&self, limit: usize) -> bool {
        self.waiter_count() < limit
    }

    /// Returns whether one more request with this claim may share its place, if it has one.
    pub fn has_room_for_copy(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> bool {
        let place = self.place_of(db, key, kind, owner).and_then(|place| self.places.get(place));
        place.is_none_or(|place| self.requests_of(place).nth(MAX_COPIES.saturating_sub(1)).is_none())
    }

    /// Returns what a request waits for, if it still does: the lock, and the claim of its place.
    pub fn origin_of(&self, request: RequestId) -> Option<(&Queue, &Claim)> {
        let place = self.places.get(self.requests.get(request)?.place)?;
        Some((self.queues.get(place.queue)?, &place.claim))
    }

    /// Returns the waiters that share the place of a claim, the latest first.
    pub fn waiters_of(&self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> impl Iterator<Item = WaiterId> {
        let place = self.place_of(db, key, kind, owner).and_then(|place| self.places.get(place));
        place.into_iter().flat_map(|place| self.requests_of(place)).map(|(_, request)| request.waiter)
    }

    /// Adds a request to the queue of a lock: at the place of its claim if it has one, else at the end of the line.
    ///
    /// Returns `None` if there are `limit` requests already. Places that are away count only as long as there is room:
    /// if all `limit` places are taken, the one that would be dropped next makes way.
    pub fn join(&mut self, join: Join<'_>, limit: usize) -> Option<Joined> {
        if !self.has_room(limit) {
            return None;
        }
        let Join { db, key, claim, waiter, now, deadline } = join;
        let (lease, share_limit, deadline) = (claim.lease, claim.limit, deadline.unwrap_or(NEVER));
        let known = self.place_of(db, key, claim.kind, &claim.owner);
        let place = match known {
            Some(place) => place,
            None => {
                self.make_room(limit);
                let queue = self.queue_of(db, key).or_else(|| self.add_queue(db, key))?;
                self.add_place(queue, claim, now)?
            }
        };
        let request = Request { place, waiter, deadline, lease, limit: share_limit, earlier: None, later: None };
        let request = self.add_request(request)?;
        Some(Joined { request, rejoined: known.is_some() })
    }

    /// Returns the first claim in line.
    pub fn first(&self, queue: QueueId) -> Option<&Claim> {
        self.first_place(queue).and_then(|place| self.places.get(place)).map(|place| &place.claim)
    }

    /// Removes and returns the first claim in line, to which the lock is now granted. Returns `None` if nobody is in
    /// line.
    pub fn grant_first(&mut self, queue: QueueId) -> Option<Grant> {
        let place = self.first_place(queue)?;
        let (db, key) = self.lock_of(queue)?;
        let granted = |request: Request| GrantedRequest { waiter: request.waiter, lease: request.lease };
        let waiters = self.remove_requests(place, granted);
        let Place { claim, turn, since, .. } = self.remove_place(place)?;
        let mut grant = Grant { db, key, claim, longest_lease: None, turn, since, waiters };
        grant.merge_leases();
        Some(grant)
    }

    /// Removes a request, because its client left or is answered otherwise.
    ///
    /// If it was the last of its place, the place is kept until `keep_until`, or dropped if that is `None`. Otherwise its
    /// lease and its limit count no more, and a review of the lock may be due. Returns `None` if the request does not wait any more.
    pub fn leave(&mut self, request: RequestId, keep_until: Option<UnixMs>) -> Option<WaiterId> {
        let request = self.remove_request(request)?;
        if self.is_away(request.place) {
            match keep_until {
                Some(until) => self.mark_away(request.place, until),
                None => _ = self.remove_place(request.place),
            }
        } else {
            self.merge_limits_again(request.place, request.limit);
        }
        Some(request.waiter)
    }

    /// Removes the places of an owner in the queue of a lock, of all kinds but `kept`.
    ///
    /// Returns the requests that waited there, or `None` if the owner had no such place.
    pub fn withdraw(&mut self, db: i32, key: &[u8], owner: &[u8], kept: Option<Kind>) -> Option<Vec<WaiterId>> {
        let mut waiters = None;
        while let Some(place) = self.any_place_of(db, key, owner, kept) {
            waiters.get_or_insert_with(Vec::new).extend(self.remove_requests(place, |request| request.waiter));
            self.remove_place(place);
        }
        waiters
    }

    /// Drops the place of a claim, if it is away: the claim was granted without it.
    pub fn drop_away_place(&mut self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) {
        let place = self.place_of(db, key, kind, owner);
        if let Some(place) = place.filter(|&place| self.is_away(place)) {
            self.remove_place(place);
        }
    }

    /// Restores the turn of a grant that was taken back. Its place is away until `until`, unless the claim waits again
    /// already.
    pub fn restore(&mut self, grant: Grant, until: UnixMs) {
        let Grant { db, key, claim, turn, since, .. } = grant;
        let place = match self.place_of(db, &key, claim.kind, &claim.owner) {
            Some(place) => Some(place),
            None => self.queue_of(db, &key).or_else(|| self.add_queue(db, &key)).and_then(|queue| {
                let place = self.add_place(queue, claim, since)?;
                self.mark_away(place, until);
                Some(place)
            }),
        };
        if let Some(place) = place {
            self.move_to_turn(place, turn);
        }
    }

    /// Drops every place that is away, one after the other.
    pub fn drop_away_places(&mut self) {
        self.drops_away = self.away.first().is_some();
    }

    /// Schedules a review of the lock for the end of its lease, or none if `lease_end` is `None`.
    pub fn review_at_lease_end(&mut self, queue: QueueId, lease_end: Option<UnixMs>) {
        self.set_review(queue, lease_end.map_or(NEVER, passed), Cause::Expiry);
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

    /// Begins a round over all queues, in which [`next_in_round`](Self::next_in_round) returns one after the other.
    pub fn begin_round(&mut self) {
        self.round.begin();
    }

    /// Returns whether a round is under way.
    pub fn is_in_round(&self) -> bool {
        self.round.has_more()
    }

    /// Returns the next queue of the round, or `None` at its end.
    pub fn next_in_round(&mut self) -> Option<QueueId> {
        self.round.next(&self.queues)
    }

    /// Begins a walk over those who wait for a lock that is another server's now. [`next_lost`](Self::next_lost) returns them.
    pub fn lose(&mut self, queue: QueueId) {
        self.lost.entry(queue).or_insert(Turn(u64::MIN));
    }

    /// Returns whether such a walk is under way.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns those who share the next place in such a walk, or nobody at its end. Returns `None` if there is no walk.
    pub fn next_lost(&mut self) -> Option<Vec<WaiterId>> {
        let (&queue, &from) = self.lost.first_key_value()?;
        // The slot of a queue that is gone may be another one's.
        let next = self.queues.get(queue).and_then(|_| self.lines.first_from(queue, from));
        let Some((turn, place)) = next else {
            self.lost.remove(&queue);
            return Some(Vec::new());
        };
        self.lost.insert(queue, Turn(turn.0.saturating_add(1)));
        let requests = self.places.get(place).into_iter().flat_map(|place| self.requests_of(place));
        Some(requests.map(|(_, request)| request.waiter).collect())
    }

    /// Returns the waiters of a lock, first in line first.
    pub fn waiters(&self, queue: QueueId) -> impl Iterator<Item = Waiter<'_>> {
        self.lines.of(queue).filter_map(|place| self.places.get(place)).flat_map(|place| {
            self.requests_of(place).map(|(_, request)| Waiter {
                claim: &place.claim,
                since: place.since,
                deadline: (request.deadline != NEVER).then_some(request.deadline),
                id: request.waiter,
            })
        })
    }

    fn first_place(&self, queue: QueueId) -> Option<PlaceId> {
        self.lines.of(queue).next()
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
