//! Due work: reviews of locks, time-outs, and detached entries to drop.

use super::record::{Queue, RecordId};
use super::reviews::is_immediate;
use super::types::EntryId;
use super::{Locks, queue_in};
use crate::core::tables::NEVER;
use crate::core::{Cause, OrBug, UnixMs};

/// Due work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The lock of this queue may be free, and its key is to be checked.
    Review(RecordId),
    /// The request of this entry has timed out.
    TimedOut(EntryId),
    /// A detached entry was dropped. There is nothing left to do.
    Dropped,
    /// The review of all locks has skipped a lock without waiters. There is nothing to do.
    Skipped,
}

/// The kinds of due work to return, from the narrowest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DueFilter {
    /// Only work that writes to no key.
    ReadOnly,
    /// All but reviews that have stopped after a batch.
    NoBacklog,
    All,
}

/// A source of due work.
type Source = fn(&mut Locks, UnixMs, DueFilter) -> Option<Due>;

/// The sources, which take turns, each with the narrowest filter that includes its work.
const SOURCES: [(DueFilter, Source); 6] = [
    (DueFilter::NoBacklog, |locks, _, _| locks.pop_review_of_all()),
    (DueFilter::NoBacklog, |locks, _, _| {
        let next = locks.reviews.next_immediate();
        locks.pop_review(next)
    }),
    (DueFilter::NoBacklog, |locks, now, _| {
        let next = locks.reviews.next_timed(now);
        locks.pop_review(next)
    }),
    (DueFilter::ReadOnly, Locks::pop_time_out),
    (DueFilter::All, |locks, _, _| locks.pop_backlog()),
    (DueFilter::ReadOnly, |locks, now, _| locks.pop_dropped(now)),
];

impl Locks {
    /// Returns the earliest time at which anything is due, or without `may_write` anything that writes to no key.
    /// [`UnixMs::MIN`] means now.
    pub fn next_due(&self, may_write: bool) -> Option<UnixMs> {
        let is_due = self.drops_detached || self.is_purging() || self.is_sweeping() || self.has_aborted();
        let reads = [is_due.then_some(UnixMs::MIN), self.deadlines.earliest(), self.detached.earliest()];
        let writes = [self.next_review(), self.revocations.earliest(), self.next_session_task()];
        let writes = writes.into_iter().filter(|_| may_write);
        let next = reads.into_iter().chain(writes).flatten().min();
        debug_assert_ne!(next, Some(NEVER), "work without a time is scheduled");
        next
    }

    fn next_review(&self) -> Option<UnixMs> {
        let is_due = self.review.has_more() || !self.backlog.is_empty();
        if is_due { Some(UnixMs::MIN) } else { self.reviews.next_due() }
    }

    /// Removes and returns work that is due at `now`.
    ///
    /// Of each kind, the earliest is returned first. A review of a lock comes before the time-outs of its requests, so a lock
    /// that became free before a deadline is still granted, unless its review has stopped after a batch. A request that has timed
    /// out is returned repeatedly until it is [withdrawn](Self::withdraw).
    pub fn pop_due(&mut self, now: UnixMs, filter: DueFilter) -> Option<Due> {
        let turns = SOURCES.iter().enumerate().cycle().skip(self.next_source).take(SOURCES.len());
        for (number, (_, source)) in turns.filter(|(_, (narrowest, _))| filter >= *narrowest) {
            if let Some(due) = source(self, now, filter) {
                self.next_source = number.saturating_add(1);
                return Some(due);
            }
        }
        None
    }

    /// Schedules the rest of a review that has stopped after a batch, behind the stopped reviews of other locks.
    pub fn review_in_turn(&mut self, id: RecordId, cause: Cause) {
        let Some(queue) = queue_in(&mut self.records, id).filter(|queue| !queue.is_in_backlog && queue.requests > 0)
        else {
            return;
        };
        self.reviews.schedule(id, queue, NEVER);
        (queue.cause, queue.is_in_backlog) = (cause, true);
        self.backlog.push_back(id);
    }

    /// Schedules the review of a queue at `time`, or cancels it if that is [`NEVER`].
    pub(super) fn set_review(&mut self, id: RecordId, time: UnixMs, cause: Cause) {
        // A lock in the backlog is reviewed in its turn, and needs no other review.
        let Some(queue) = queue_in(&mut self.records, id).filter(|queue| !queue.is_in_backlog) else { return };
        // Without requests there is no waiter that could be granted the lock.
        let time = if queue.requests == 0 { NEVER } else { time };
        note_cause(queue, cause);
        self.reviews.schedule(id, queue, time);
    }

    /// Records that a lock has had a whole batch of grants in the run of the background work with this number.
    pub fn end_batch(&mut self, id: RecordId, run: u32) {
        if let Some(queue) = queue_in(&mut self.records, id) {
            queue.last_batch_run = run;
        }
    }

    /// Returns whether a lock has had a batch in this run, and its review is to continue in its turn.
    pub fn has_used_batch(&self, queue: RecordId, run: u32) -> bool {
        self.queue(queue).is_some_and(|queue| queue.is_in_backlog && queue.last_batch_run == run)
    }

    /// Returns the review of the next queue in a review of all queues, or [`Due::Skipped`] if the queue has no requests.
    fn pop_review_of_all(&mut self) -> Option<Due> {
        let id = self.review.next(&self.records)?;
        let number = self.review.number();
        let Some(queue) = queue_in(&mut self.records, id).filter(|queue| queue.requests > 0) else {
            return Some(Due::Skipped);
        };
        note_cause(queue, Cause::Other);
        queue.last_review = number;
        Some(Due::Review(id))
    }

    /// Takes the review of a queue that is due.
    fn pop_review(&mut self, id: Option<RecordId>) -> Option<Due> {
        let id = id?;
        let queue = queue_in(&mut self.records, id).or_bug("a queue with a review does not exist")?;
        debug_assert!(queue.requests > 0, "a lock without waiters is reviewed");
        debug_assert!(!queue.is_in_backlog, "a lock in the backlog has a review of its own");
        self.reviews.schedule(id, queue, NEVER);
        Some(Due::Review(id))
    }

    /// Returns a request whose deadline has passed, or the review of its lock if that is due before.
    fn pop_time_out(&mut self, now: UnixMs, filter: DueFilter) -> Option<Due> {
        let (id, deadline, slot) = self.deadlines.next_due(now)?;
        if filter != DueFilter::ReadOnly && self.take_review_before(id, deadline) {
            return Some(Due::Review(id));
        }
        let queue = queue_in(&mut self.records, id).or_bug("a queue with deadlines does not exist")?;
        self.deadlines.end_turn(id, queue, now);
        self.entries.id_at(slot).or_bug("an entry with a deadline does not exist").map(Due::TimedOut)
    }

    /// Returns whether the review of a queue is due before a deadline, and cancels that review.
    fn take_review_before(&mut self, id: RecordId, deadline: UnixMs) -> bool {
        let Some(queue) = queue_in(&mut self.records, id) else { return false }; // The caller reports it.
        if self.review.has_more() && queue.last_review != self.review.number() {
            queue.last_review = self.review.number();
            return true;
        }
        let is_due = queue.review_at <= deadline;
        if is_due {
            self.reviews.schedule(id, queue, NEVER);
        }
        is_due
    }

    /// Returns the next review that has stopped and is to continue.
    fn pop_backlog(&mut self) -> Option<Due> {
        // A queue may have been dropped since, or may have no waiters.
        while let Some(id) = self.backlog.pop_front() {
            if let Some(queue) = queue_in(&mut self.records, id) {
                queue.is_in_backlog = false;
                if queue.requests > 0 {
                    return Some(Due::Review(id));
                }
            }
        }
        None
    }

    /// Drops a detached entry whose time has passed, or any detached entry if all are to be dropped.
    fn pop_dropped(&mut self, now: UnixMs) -> Option<Due> {
        let entry = if self.drops_detached { self.detached.first() } else { self.detached.first_due(now) };
        let dropped = entry.and_then(|entry| self.remove_entry(entry));
        self.drops_detached &= self.detached.first().is_some();
        dropped.map(|_| Due::Dropped)
    }
}

/// Records the event that made a lock free. An unknown one does not replace that of an immediate review that is scheduled.
fn note_cause(queue: &mut Queue, cause: Cause) {
    if cause != Cause::Other || !is_immediate(queue.review_at) {
        queue.cause = cause;
    }
}
