//! Who waits for which lock, in which order, and until when.
//!
//! A **queue** belongs to one lock and exists only while it has places. A **place** is a claim on the lock: it has its
//! turn, and its turn says which. A **request** is a connection that wants the answer, with a deadline of its own.
//! Requests with the same claim share a place, so one that is sent twice stands in line once. A place whose last request
//! has left may be kept for a while: it is **away**, out of the line and in nobody's way, and takes up its turn again
//! when the same claim comes back.
//!
//! Invariants: a place is in exactly one queue; it is in the line exactly while it has requests, and has a time to be
//! dropped exactly while it has none; a request is answered at most once, because the answer takes it out.

mod claims;
mod line;
mod places;
mod types;

use std::rc::Rc;

use super::lock_index::LockIndex;
use super::slab::Slab;
use super::timer_queue::{NEVER, TimerQueue};
use super::{Arena, Cause, Cursor, Kind, UnixMs};
use claims::ClaimIndex;
use line::Lines;
pub use types::{
    Claim, Due, DueFilter, Grant, Join, Joined, Queue, QueueId, Request, RequestId, Turn, Waiter, WaiterId,
};
use types::{Place, PlaceId};

/// All queues of the server.
pub struct WaitQueues {
    index: LockIndex<Queue>,
    queues: Arena<Queue>,
    places: Slab<Place>,
    requests: Arena<Request>,
    claims: ClaimIndex,
    lines: Lines,
    next_turn: u64,
    reviews: TimerQueue<QueueId>,
    deadlines: TimerQueue<RequestId>,
    /// Places that are away, by when they are dropped.
    away: TimerQueue<PlaceId>,
    /// Where a look at all queues has come to.
    review_cursor: Cursor,
}

/// When a point of time has passed. The server thinks so, too: a key that expires at t still exists at t.
fn passed(time: UnixMs) -> UnixMs {
    time.saturating_add(1)
}

impl WaitQueues {
    pub const fn new() -> Self {
        Self {
            index: LockIndex::new(),
            queues: Arena::new(),
            places: Slab::new(),
            requests: Arena::new(),
            claims: ClaimIndex::new(),
            lines: Lines::new(),
            next_turn: 0,
            reviews: TimerQueue::new(),
            deadlines: TimerQueue::new(),
            away: TimerQueue::new(),
            review_cursor: Cursor::END,
        }
    }

    /// Requests that wait, over all locks.
    pub fn waiter_count(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is no place, present or away, in any queue.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The queue of a lock, if it has places.
    pub fn queue_of(&self, db: i32, key: &[u8]) -> Option<QueueId> {
        if self.is_empty() { None } else { self.index.get(db, key) }
    }

    /// The database and key of a queue's lock.
    pub fn lock_of(&self, queue: QueueId) -> Option<(i32, Rc<[u8]>)> {
        self.queues.get(queue).map(|queue| (queue.db, Rc::clone(&queue.key)))
    }

    /// What has freed the lock, if it is free, as far as the events tell.
    pub fn cause_of(&self, queue: QueueId) -> Cause {
        self.queues.get(queue).map_or(Cause::Other, |queue| queue.cause)
    }

    /// Requests that wait for this lock.
    pub fn waiter_count_of(&self, queue: QueueId) -> usize {
        self.queues.get(queue).map_or(0, |queue| queue.requests as usize)
    }

    /// Lets a connection wait: at the place of its claim if there is one, else at the end of the line. `None` if `limit`
    /// places are taken and none of them is away; of those that are, the one nearest to its end makes waiting.
    pub fn join(&mut self, join: Join<'_>, limit: usize) -> Option<Joined> {
        if self.waiter_count() >= limit {
            return None;
        }
        let Join { db, key, claim, waiter, now, deadline } = join;
        let known = self.place_of(db, key, claim.kind, &claim.owner);
        let place = match known {
            Some(place) => {
                self.merge_lease(place, claim.lease);
                place
            }
            None => {
                self.make_room(limit);
                let queue = self.index.get(db, key).or_else(|| self.add_queue(db, key))?;
                self.add_place(queue, claim, now)?
            }
        };
        let request = self.add_request(place, waiter, deadline.unwrap_or(NEVER))?;
        Some(Joined { request, rejoined: known.is_some() })
    }

    /// Takes the first in line out: the lock has come free and is this claim's now. `None`: nobody is present.
    pub fn grant_first(&mut self, queue: QueueId) -> Option<Grant> {
        let place = self.lines.of(queue).next()?;
        let (db, key) = self.lock_of(queue)?;
        let waiters = self.remove_requests(place);
        let Place { claim, longest_lease, turn, since, .. } = self.remove_place(place)?;
        Some(Grant { db, key, claim, longest_lease, turn, since, waiters })
    }

    /// Takes a request out: its client left or is answered otherwise. The place of the last one is kept until
    /// `keep_until`, if that is said. `None` if the request waits no more.
    pub fn leave(&mut self, request: RequestId, keep_until: Option<UnixMs>) -> Option<WaiterId> {
        let request = self.remove_request(request)?;
        if self.is_away(request.place) {
            match keep_until {
                Some(until) => self.mark_away(request.place, until),
                None => _ = self.remove_place(request.place),
            }
        }
        Some(request.waiter)
    }

    /// Gives up the places that an identity has for a lock, of either kind. Returns the connections that waited there, or
    /// `None` if it had no place.
    pub fn withdraw(&mut self, db: i32, key: &[u8], owner: &[u8]) -> Option<Vec<WaiterId>> {
        let mut waiters = None;
        for kind in [Kind::Mutex, Kind::Reentrant] {
            if let Some(place) = self.place_of(db, key, kind, owner) {
                waiters.get_or_insert_with(Vec::new).extend(self.remove_requests(place));
                self.remove_place(place);
            }
        }
        waiters
    }

    /// Drops the place of a claim that was granted otherwise: it is away, and while nobody is present took the free lock.
    pub fn drop_away_place(&mut self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) {
        let place = self.place_of(db, key, kind, owner);
        if let Some(place) = place.filter(|&place| self.is_away(place)) {
            self.remove_place(place);
        }
    }

    /// Keeps the turn of a grant that was taken back, in a place that is away unless its claim waits again already.
    pub fn restore(&mut self, grant: Grant, until: UnixMs) {
        let Grant { db, key, claim, longest_lease, turn, since, .. } = grant;
        let place = match self.place_of(db, &key, claim.kind, &claim.owner) {
            Some(place) => Some(place),
            None => self.index.get(db, &key).or_else(|| self.add_queue(db, &key)).and_then(|queue| {
                let place = self.add_place(queue, claim, since)?;
                self.places.get_mut(place)?.longest_lease = longest_lease;
                self.mark_away(place, until);
                Some(place)
            }),
        };
        if let Some(place) = place {
            self.move_to_turn(place, turn);
        }
    }

    /// Drops every place that is away.
    pub fn drop_away_places(&mut self) {
        while let Some(place) = self.away.first() {
            self.remove_place(place);
        }
    }

    /// Looks at the lock again when its lease ends (`None`: it has none).
    pub fn review_at_lease_end(&mut self, queue: QueueId, lease_end: Option<UnixMs>) {
        self.set_review(queue, lease_end.map_or(NEVER, passed), Cause::Expiry);
    }

    /// Looks at the lock again at `time`, with the cause unchanged.
    pub fn review_at(&mut self, queue: QueueId, time: UnixMs) {
        self.set_review(queue, time, self.cause_of(queue));
    }

    /// Looks at the lock as soon as can be: something happened to its key.
    pub fn review_soon(&mut self, queue: QueueId, cause: Cause) {
        self.set_review(queue, UnixMs::MIN, cause);
    }

    /// Looks at every lock as soon as can be, one after the other.
    pub fn review_all(&mut self) {
        self.review_cursor = Cursor::start();
    }

    /// When something falls due next.
    pub fn next_due(&self, filter: DueFilter) -> Option<UnixMs> {
        let reviews = match filter {
            DueFilter::All if self.review_cursor.has_more() => Some(UnixMs::MIN),
            DueFilter::All => self.reviews.earliest(),
            DueFilter::ReadOnly => None,
        };
        [reviews, self.deadlines.earliest(), self.away.earliest()].into_iter().flatten().min()
    }

    /// Takes out what is due, earliest first, so that a lock that came free before a deadline is still granted. The
    /// place of a request whose time is up is kept until `keep_until`, if that is said.
    pub fn pop_due(&mut self, now: UnixMs, filter: DueFilter, keep_until: Option<UnixMs>) -> Option<Due> {
        if let Some(queue) = self.next_in_review_of_all(filter) {
            return Some(Due::Review(queue));
        }
        let review = self.reviews.earliest().filter(|_| filter == DueFilter::All);
        let [deadline, away] = [self.deadlines.earliest(), self.away.earliest()];
        let before =
            |one: Option<UnixMs>, other: Option<UnixMs>| one.is_some() && other.is_none_or(|at| one <= Some(at));
        if before(review, deadline) && before(review, away) {
            let queue = self.reviews.pop_due(now)?;
            if let Some(queue) = self.queues.get_mut(queue) {
                queue.review_at = NEVER;
            }
            return Some(Due::Review(queue));
        }
        if before(deadline, away) {
            let request = self.deadlines.pop_due(now)?;
            return self.leave(request, keep_until).map(Due::TimedOut);
        }
        let place = self.away.pop_due(now)?;
        self.remove_place(place).map(|_| Due::Dropped)
    }

    /// The next queue of a look at all of them that somebody is present in.
    fn next_in_review_of_all(&mut self, filter: DueFilter) -> Option<QueueId> {
        if filter == DueFilter::ReadOnly {
            return None;
        }
        while let Some(id) = self.queues.next(&mut self.review_cursor) {
            if let Some(queue) = self.queues.get_mut(id).filter(|queue| queue.requests > 0) {
                queue.cause = Cause::Other;
                return Some(id);
            }
        }
        None
    }

    /// The waiters of a lock, first in line first.
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

    fn add_queue(&mut self, db: i32, key: &[u8]) -> Option<QueueId> {
        let key: Rc<[u8]> = key.into();
        let id = self.queues.insert(Queue::new(db, Rc::clone(&key)))?;
        self.index.insert(db, key, id);
        Some(id)
    }

    fn set_review(&mut self, id: QueueId, time: UnixMs, cause: Cause) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        // Nobody present: nobody to serve.
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
