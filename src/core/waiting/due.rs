//! What is due: reviews of locks, time-outs, and places to be dropped.

use super::WaitQueues;
use super::types::{Due, DueFilter};
use crate::core::timer_queue::NEVER;
use crate::core::{Cause, UnixMs};

impl WaitQueues {
    /// Returns the time when something is due next.
    pub fn next_due(&self, filter: DueFilter) -> Option<UnixMs> {
        let reviews = match filter {
            DueFilter::All if self.review.has_more() => Some(UnixMs::MIN),
            DueFilter::All => self.reviews.earliest(),
            DueFilter::ReadOnly => None,
        };
        let away = if self.drops_away { Some(UnixMs::MIN) } else { self.away.earliest() };
        [reviews, self.deadlines.earliest(), away].into_iter().flatten().min()
    }

    /// Removes and returns the earliest thing that is due at `now`. So a lock that came free before a deadline is still
    /// granted.
    ///
    /// A review of all locks takes turns with what is due by its time. A request that timed out is returned again and
    /// again, until it [leaves](Self::leave).
    pub fn pop_due(&mut self, now: UnixMs, filter: DueFilter) -> Option<Due> {
        if self.drops_away {
            let dropped = self.away.first().and_then(|place| self.remove_place(place));
            self.drops_away = self.away.first().is_some();
            return dropped.map(|_| Due::Dropped);
        }
        if filter == DueFilter::ReadOnly || !self.review.has_more() {
            return self.pop_by_time(now, filter);
        }
        self.has_reviewed = !self.has_reviewed;
        if self.has_reviewed {
            let review = self.next_in_review_of_all();
            return review.or_else(|| self.pop_by_time(now, filter));
        }
        let due = self.pop_by_time(now, filter).map(|due| self.review_before(due));
        due.or_else(|| self.next_in_review_of_all())
    }

    /// Returns a review in place of a request whose time is up, if its lock has not been reviewed yet: it may be free.
    fn review_before(&mut self, due: Due) -> Due {
        let Due::TimedOut(request) = due else { return due };
        if self.reviewed_for.replace(request) == Some(request) {
            return due;
        }
        let place = self.requests.get(request).and_then(|request| self.places.get(request.place));
        place.map_or(due, |place| Due::Review(place.queue))
    }

    /// Removes and returns the earliest thing that is due at `now` by its time.
    fn pop_by_time(&mut self, now: UnixMs, filter: DueFilter) -> Option<Due> {
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
            return self.deadlines.first().filter(|_| deadline <= Some(now)).map(Due::TimedOut);
        }
        let place = self.away.pop_due(now)?;
        self.remove_place(place).map(|_| Due::Dropped)
    }

    /// Returns what is due with the next queue in a review of all queues: nothing, if it has no requests.
    fn next_in_review_of_all(&mut self) -> Option<Due> {
        let id = self.review.next(&self.queues)?;
        let Some(queue) = self.queues.get_mut(id).filter(|queue| queue.requests > 0) else {
            return Some(Due::PassedBy);
        };
        queue.cause = Cause::Other;
        Some(Due::Review(id))
    }
}
