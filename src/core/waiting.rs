//! Who waits for which lock, in which order, and until when.
//!
//! A **queue** belongs to one lock and exists only while somebody waits for it. A **place** in it is a claim on the
//! lock: it has its turn. A **request** is a connection that wants the answer, with a deadline of its own. A place and
//! a request are two things because a place can outlive a connection and be shared by several; so far each place has
//! exactly one request.
//!
//! Invariants: a place is in exactly one queue, and a queue has at least one place; places leave a queue from its front
//! when they are served or from anywhere when their request leaves; a request is answered at most once, because the
//! answer takes it out.

mod queues;

use std::rc::Rc;

use super::agenda::Agenda;
use super::{Arena, Cause, Id, Kind, Lease, UnixMs};
use queues::QueueIndex;

/// Handle to the queue of a contended lock.
pub type QueueId = Id<Queue>;
/// Handle to a request that waits.
pub type RequestId = Id<Request>;
type PlaceId = Id<Place>;

/// The host's handle to a blocked client; the core only hands it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId(pub u64);

/// What a waiter wants, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub kind: Kind,
    pub owner: Box<[u8]>,
    /// Counts from the moment of the grant.
    pub lease: Option<Lease>,
}

/// The queue of one lock.
pub struct Queue {
    db: i32,
    key: Rc<[u8]>,
    first: Option<PlaceId>,
    last: Option<PlaceId>,
    waiting: usize,
    /// When to look at the lock again, unless something happens to it before.
    review_at: Option<UnixMs>,
    /// What is thought to free the lock next.
    cause: Cause,
}

struct Place {
    queue: QueueId,
    ahead: Option<PlaceId>,
    behind: Option<PlaceId>,
    claim: Claim,
    since: UnixMs,
    request: Option<RequestId>,
}

/// A connection that waits.
pub struct Request {
    place: PlaceId,
    connection: ConnectionId,
    deadline: Option<UnixMs>,
}

/// The waiter whose turn has come. It is in no queue any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    pub claim: Claim,
    pub since: UnixMs,
    pub connection: ConnectionId,
}

/// A waiter as an onlooker sees it.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiter<'w> {
    pub claim: &'w Claim,
    pub since: UnixMs,
    pub deadline: Option<UnixMs>,
    pub connection: ConnectionId,
}

/// Something whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The lock of this queue may have come free: look at it.
    Review(QueueId),
    /// The time of this connection is up. Its request is in no queue any more.
    TimedOut(ConnectionId),
}

/// Which things fall due: all, or only deadlines because nothing may be written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timely {
    All,
    DeadlinesOnly,
}

/// When a point of time has passed. The server thinks so, too: a key that expires at t still exists at t.
fn passed(time: UnixMs) -> UnixMs {
    time.saturating_add(1)
}

/// All queues of the server.
pub struct WaitingRoom {
    index: QueueIndex,
    queues: Arena<Queue>,
    places: Arena<Place>,
    requests: Arena<Request>,
    reviews: Agenda<QueueId>,
    deadlines: Agenda<RequestId>,
}

impl WaitingRoom {
    pub const fn new() -> Self {
        Self {
            index: QueueIndex::new(),
            queues: Arena::new(),
            places: Arena::new(),
            requests: Arena::new(),
            reviews: Agenda::new(),
            deadlines: Agenda::new(),
        }
    }

    /// Requests that wait, over all locks.
    pub fn waiting(&self) -> usize {
        self.requests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The queue of a lock, if anybody waits for it.
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
    pub fn waiting_for(&self, queue: QueueId) -> usize {
        self.queues.get(queue).map_or(0, |queue| queue.waiting)
    }

    /// Puts a claim at the end of the lock's queue. `deadline`: when the answer is nil; `None` waits for ever.
    /// `None` is answered only if the arenas are full, which no configuration allows.
    pub fn join(
        &mut self,
        (db, key): (i32, &[u8]),
        claim: Claim,
        connection: ConnectionId,
        now: UnixMs,
        deadline: Option<UnixMs>,
    ) -> Option<RequestId> {
        let queue_id = match self.index.get(db, key) {
            Some(queue) => queue,
            None => self.open_queue(db, key)?,
        };
        let ahead = self.queues.get(queue_id)?.last;
        let place = Place { queue: queue_id, ahead, behind: None, claim, since: now, request: None };
        let place_id = self.places.insert(place)?;
        let request_id = self.requests.insert(Request { place: place_id, connection, deadline })?;
        self.places.get_mut(place_id)?.request = Some(request_id);
        if let Some(ahead) = ahead.and_then(|ahead| self.places.get_mut(ahead)) {
            ahead.behind = Some(place_id);
        }
        let queue = self.queues.get_mut(queue_id)?;
        queue.first = queue.first.or(Some(place_id));
        queue.last = Some(place_id);
        queue.waiting = queue.waiting.saturating_add(1);
        self.deadlines.reschedule(request_id, None, deadline.map(passed));
        Some(request_id)
    }

    /// Takes the first waiter out: the lock has come free and is this waiter's now.
    pub fn serve_first(&mut self, queue: QueueId) -> Option<Grant> {
        let first = self.queues.get(queue)?.first?;
        let request = self.places.get(first)?.request?;
        let (place, Request { connection, .. }) = self.take_out(request)?;
        Some(Grant { claim: place.claim, since: place.since, connection })
    }

    /// Takes a request out of its queue: its client left or is answered otherwise. `None` if it waits no more.
    pub fn leave(&mut self, request: RequestId) -> Option<ConnectionId> {
        self.take_out(request).map(|(_, request)| request.connection)
    }

    /// Looks at the lock again when its lease ends (`None`: it has none).
    pub fn review_after(&mut self, queue: QueueId, lease_end: Option<UnixMs>) {
        self.set_review(queue, lease_end.map(passed), Cause::Expiry);
    }

    /// Looks at the lock again at `time`, with the cause unchanged.
    pub fn review_at(&mut self, queue: QueueId, time: UnixMs) {
        self.set_review(queue, Some(time), self.cause_of(queue));
    }

    /// Looks at the lock as soon as can be: something happened to its key.
    pub fn review_soon(&mut self, queue: QueueId, cause: Cause) {
        self.set_review(queue, Some(UnixMs::MIN), cause);
    }

    /// Looks at every lock of a database, or of all of them, as soon as can be.
    pub fn review_all(&mut self, db: Option<i32>) {
        for queue in self.index.all(db) {
            self.review_soon(queue, Cause::Other);
        }
    }

    /// When something falls due next.
    pub fn next_due(&self, timely: Timely) -> Option<UnixMs> {
        let reviews = match timely {
            Timely::All => self.reviews.earliest(),
            Timely::DeadlinesOnly => None,
        };
        [reviews, self.deadlines.earliest()].into_iter().flatten().min()
    }

    /// Takes out what is due, earliest first, so that a lock that came free before a deadline is still granted.
    pub fn pop_due(&mut self, now: UnixMs, timely: Timely) -> Option<Due> {
        let deadline = self.deadlines.earliest();
        let review = self.reviews.earliest().filter(|_| timely == Timely::All);
        if review.is_some_and(|review| deadline.is_none_or(|deadline| review <= deadline)) {
            let queue = self.reviews.pop_due(now)?;
            if let Some(queue) = self.queues.get_mut(queue) {
                queue.review_at = None;
            }
            return Some(Due::Review(queue));
        }
        let request = self.deadlines.pop_due(now)?;
        self.leave(request).map(Due::TimedOut)
    }

    /// The waiters of a lock, first in line first.
    pub fn waiters(&self, queue: QueueId) -> impl Iterator<Item = Waiter<'_>> {
        let first = self.queues.get(queue).and_then(|queue| queue.first);
        let places =
            std::iter::successors(first.and_then(|id| self.places.get(id)), |place| self.places.get(place.behind?));
        places.filter_map(|place| {
            let request = self.requests.get(place.request?)?;
            let &Request { connection, deadline, .. } = request;
            Some(Waiter { claim: &place.claim, since: place.since, deadline, connection })
        })
    }

    fn open_queue(&mut self, db: i32, key: &[u8]) -> Option<QueueId> {
        let key: Rc<[u8]> = key.into();
        let queue = Queue {
            db,
            key: Rc::clone(&key),
            first: None,
            last: None,
            waiting: 0,
            review_at: None,
            cause: Cause::Other,
        };
        let id = self.queues.insert(queue)?;
        self.index.insert(db, key, id);
        Some(id)
    }

    fn set_review(&mut self, id: QueueId, time: Option<UnixMs>, cause: Cause) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        self.reviews.reschedule(id, queue.review_at, time);
        queue.review_at = time;
        queue.cause = cause;
    }

    /// Takes a request and its place out, and the queue with them if nobody else waits in it.
    fn take_out(&mut self, id: RequestId) -> Option<(Place, Request)> {
        let request = self.requests.remove(id)?;
        self.deadlines.reschedule(id, request.deadline.map(passed), None);
        let place = self.places.remove(request.place)?;
        if let Some(ahead) = place.ahead.and_then(|ahead| self.places.get_mut(ahead)) {
            ahead.behind = place.behind;
        }
        if let Some(behind) = place.behind.and_then(|behind| self.places.get_mut(behind)) {
            behind.ahead = place.ahead;
        }
        let queue = self.queues.get_mut(place.queue)?;
        queue.waiting = queue.waiting.saturating_sub(1);
        if queue.first == Some(request.place) {
            queue.first = place.behind;
        }
        if queue.last == Some(request.place) {
            queue.last = place.ahead;
        }
        if queue.first.is_none() {
            self.close_queue(place.queue);
        }
        Some((place, request))
    }

    fn close_queue(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.remove(id) {
            self.reviews.reschedule(id, queue.review_at, None);
            self.index.remove(queue.db, &queue.key);
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
