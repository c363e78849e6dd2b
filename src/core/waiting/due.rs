//! Due work: reviews of locks, time-outs, and places to be dropped.

use super::WaitQueues;
use super::types::{Due, DueFilter, QueueId};
use crate::core::timer_queue::NEVER;
use crate::core::{Cause, UnixMs};

/// A source of due work.
type Source = fn(&mut WaitQueues, UnixMs, DueFilter) -> Option<Due>;

/// The sources take turns, so that none of them has to wait for another, however much is due there.
const SOURCES: [Source; 5] = [
    WaitQueues::pop_review_of_all,
    WaitQueues::pop_review,
    WaitQueues::pop_time_out,
    WaitQueues::pop_backlog,
    WaitQueues::pop_dropped,
];

impl WaitQueues {
    /// Returns the time when something is due next.
    pub fn next_due(&self, filter: DueFilter) -> Option<UnixMs> {
        let has_backlog = filter == DueFilter::All && !self.backlog.is_empty();
        let reviews = match filter {
            DueFilter::ReadOnly => None,
            _ if self.review.has_more() || has_backlog => Some(UnixMs::MIN),
            _ => self.reviews.earliest(),
        };
        let detached = if self.drops_detached { Some(UnixMs::MIN) } else { self.detached.earliest() };
        [reviews, self.deadlines.earliest(), detached].into_iter().flatten().min()
    }

    /// Removes and returns something that is due at `now`.
    ///
    /// Of each kind the earliest comes first. A lock that is due for review is reviewed before a request for it times out, so a
    /// lock that came free before a deadline is still granted, unless its review has stopped after a batch. A request that timed
    /// out is returned again and again, until it [leaves](Self::withdraw_request).
    pub fn pop_due(&mut self, now: UnixMs, filter: DueFilter) -> Option<Due> {
        let turns = SOURCES.iter().enumerate().cycle().skip(self.next_source).take(SOURCES.len());
        for (number, source) in turns {
            if let Some(due) = source(self, now, filter) {
                self.next_source = number.saturating_add(1).checked_rem(SOURCES.len()).unwrap_or(0);
                return Some(due);
            }
        }
        None
    }

    /// Schedules the rest of a review that has stopped although the first waiter can be granted the lock. It goes on behind those
    /// of other locks that have stopped earlier.
    pub fn review_in_turn(&mut self, id: QueueId, cause: Cause) {
        let Some(queue) = self.queues.get_mut(id).filter(|queue| !queue.is_in_backlog && queue.requests > 0) else {
            return;
        };
        self.reviews.reschedule(id, queue.review_at, NEVER);
        (queue.review_at, queue.cause, queue.is_in_backlog) = (NEVER, cause, true);
        self.backlog.push_back(id);
    }

    /// Records that a lock has had a whole batch of grants, after the background work began to run for the time with this number.
    pub fn end_batch(&mut self, id: QueueId, run: u32) {
        if let Some(queue) = self.queues.get_mut(id) {
            queue.last_batch_run = run;
        }
    }

    /// Returns whether a lock has had a batch since that run began, and its review is to go on in its turn.
    pub fn has_used_batch(&self, queue: QueueId, run: u32) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.is_in_backlog && queue.last_batch_run == run)
    }

    /// Returns the review of the next queue in a review of all queues, or [`Due::Skipped`] if the queue has no requests.
    fn pop_review_of_all(&mut self, _now: UnixMs, filter: DueFilter) -> Option<Due> {
        if filter == DueFilter::ReadOnly {
            return None;
        }
        let id = self.review.next(&self.queues)?;
        let number = self.review.number();
        let Some(queue) = self.queues.get_mut(id).filter(|queue| queue.requests > 0) else {
            return Some(Due::Skipped);
        };
        (queue.cause, queue.last_review) = (Cause::Other, number);
        Some(Due::Review(id))
    }

    fn pop_review(&mut self, now: UnixMs, filter: DueFilter) -> Option<Due> {
        if filter == DueFilter::ReadOnly {
            return None;
        }
        let id = self.reviews.pop_due(now)?;
        if let Some(queue) = self.queues.get_mut(id) {
            queue.review_at = NEVER;
        }
        Some(Due::Review(id))
    }

    /// Returns a request whose time is up, or a review of its lock, if that is due: the lock may be free.
    fn pop_time_out(&mut self, now: UnixMs, filter: DueFilter) -> Option<Due> {
        let (id, deadline, slot) = self.deadlines.first_due(now)?;
        if filter != DueFilter::ReadOnly && self.take_review_before(id, deadline) {
            return Some(Due::Review(id));
        }
        if let Some(queue) = self.queues.get_mut(id) {
            self.deadlines.end_turn(id, queue, now);
        }
        self.requests.id_at(slot).map(Due::TimedOut)
    }

    /// Returns whether a queue is to be reviewed before a deadline is over, and takes that for done.
    fn take_review_before(&mut self, id: QueueId, deadline: UnixMs) -> bool {
        let Some(queue) = self.queues.get_mut(id) else { return false };
        if self.review.has_more() && queue.last_review != self.review.number() {
            queue.last_review = self.review.number();
            return true;
        }
        let is_due = queue.review_at <= deadline;
        if is_due {
            self.reviews.reschedule(id, std::mem::replace(&mut queue.review_at, NEVER), NEVER);
        }
        is_due
    }

    /// Returns the next review that has stopped and is to go on.
    fn pop_backlog(&mut self, _now: UnixMs, filter: DueFilter) -> Option<Due> {
        if filter != DueFilter::All {
            return None;
        }
        // A queue may have been dropped since, or all its waiters have left.
        while let Some(id) = self.backlog.pop_front() {
            if let Some(queue) = self.queues.get_mut(id) {
                queue.is_in_backlog = false;
                if queue.requests > 0 {
                    return Some(Due::Review(id));
                }
            }
        }
        None
    }

    /// Drops a place that is away and whose time has passed, or any if all of them are to be dropped.
    fn pop_dropped(&mut self, now: UnixMs, _filter: DueFilter) -> Option<Due> {
        // The last of them may have come back, or have been removed, meanwhile.
        self.drops_detached &= self.detached.first().is_some();
        let entry = if self.drops_detached { self.detached.first() } else { self.detached.pop_due(now) }?;
        let dropped = self.remove_entry(entry);
        self.drops_detached &= self.detached.first().is_some();
        dropped.map(|_| Due::Dropped)
    }
}
