//! Reviews: checks whether a lock is free or has capacity for its first waiter.
//!
//! A queue has at most one scheduled review. A review that has stopped after a batch **continues** in the turn of its lock, and no
//! other review replaces it.

use super::record::{Queue, Record, RecordId};
use super::tasks::{Task, Work};
use super::{Locks, first_expired_ms, queue_in};
use crate::core::tables::{AT_ONCE, NEVER, is_resting};
use crate::core::{Cause, OrBug, UnixMs};

impl Locks {
    /// Schedules a review of the lock for the end of its lease, or cancels the review if `lease_end` is `None`.
    pub fn review_at_lease_end(&mut self, queue: RecordId, lease_end: Option<UnixMs>) {
        self.set_review(queue, lease_end.map_or(NEVER, first_expired_ms), Cause::Expiry);
    }

    /// Schedules a review of the lock at `time` with the same cause.
    pub fn review_at(&mut self, queue: RecordId, time: UnixMs) {
        self.set_review(queue, time, self.cause_of(queue));
    }

    /// Schedules an immediate review of the lock, because its key has changed.
    pub fn review_soon(&mut self, queue: RecordId, cause: Cause) {
        self.set_review(queue, AT_ONCE, cause);
    }

    /// Begins a review of all locks, one after the other.
    pub fn review_all(&mut self) {
        self.review.begin();
    }

    /// Schedules the rest of a review that has stopped after a batch.
    pub fn review_in_turn(&mut self, id: RecordId, cause: Cause) {
        let Some(queue) = queue_in(&mut self.records, id).filter(|queue| !queue.continues_review && queue.requests > 0)
        else {
            return;
        };
        (queue.cause, queue.continues_review) = (cause, true);
        self.move_review(id, AT_ONCE);
    }

    /// Begins a run of the background work: locks that have had a batch have their turns again.
    pub fn begin_run(&mut self) {
        while let Some(slot) = self.work.next_resting() {
            if let Some(record) = self.records.id_at(slot).and_then(|id| self.records.get_mut(id)) {
                self.work.wake(slot, &mut record.work_place);
            }
        }
    }

    /// Records that a lock has had a whole batch, and has more work. It has no other turn until the next run.
    pub fn end_batch(&mut self, id: RecordId) {
        if let Some(record) = self.records.get_mut(id) {
            self.work.rest(id.slot(), &mut record.work_place);
        }
    }

    /// Returns whether a lock has had a batch, and its review is to continue in the next run.
    pub fn has_used_batch(&self, id: RecordId) -> bool {
        let is_resting = |record: &Record| record.queue.continues_review && is_resting(record.work_place);
        self.records.get(id).is_some_and(is_resting)
    }

    /// Schedules the review of a queue at `time`, or cancels it if that is [`NEVER`].
    pub(super) fn set_review(&mut self, id: RecordId, time: UnixMs, cause: Cause) {
        let Some(queue) = queue_in(&mut self.records, id).filter(|queue| !queue.continues_review) else { return };
        note_cause(queue, cause);
        // Without requests there is no waiter that could be granted the lock.
        let time = if queue.requests == 0 { NEVER } else { time };
        self.move_review(id, time);
    }

    /// Cancels the review of a queue without requests.
    pub(super) fn cancel_review(&mut self, id: RecordId) {
        if let Some(queue) = queue_in(&mut self.records, id) {
            queue.continues_review = false;
            self.move_review(id, NEVER);
        }
    }

    fn move_review(&mut self, id: RecordId, time: UnixMs) {
        if let Some(queue) = queue_in(&mut self.records, id) {
            let before = std::mem::replace(&mut queue.review_at, time);
            self.reschedule(id, Work::Review, before, time);
        }
    }

    /// Takes the review of a queue that is due.
    pub(super) fn take_review(&mut self, id: RecordId) -> Option<Task> {
        let queue = queue_in(&mut self.records, id).or_bug("a queue with a review does not exist")?;
        debug_assert!(queue.requests > 0, "a lock without waiters is reviewed");
        queue.continues_review = false;
        self.move_review(id, NEVER);
        Some(Task::Review(id))
    }

    /// Returns the review of the next queue in a review of all queues, or [`Task::Done`] if the queue has no requests.
    pub(super) fn pop_review_of_all(&mut self) -> Option<Task> {
        let id = self.review.next(&self.records)?;
        let number = self.review.number();
        let Some(queue) = queue_in(&mut self.records, id).filter(|queue| queue.requests > 0) else {
            return Some(Task::Done);
        };
        note_cause(queue, Cause::Other);
        queue.last_review = number;
        Some(Task::Review(id))
    }

    /// Returns whether the review of a queue is due before a deadline, and takes that review.
    pub(super) fn take_review_before(&mut self, id: RecordId, deadline: UnixMs) -> bool {
        let Some(queue) = queue_in(&mut self.records, id) else { return false }; // The caller reports it.
        if self.review.has_more() && queue.last_review != self.review.number() {
            queue.last_review = self.review.number();
            return true;
        }
        let is_due = queue.review_at <= deadline && !queue.continues_review;
        if is_due {
            self.move_review(id, NEVER);
        }
        is_due
    }
}

/// Records the event that made a lock free. An unknown one does not replace that of an immediate review that is scheduled.
fn note_cause(queue: &mut Queue, cause: Cause) {
    if cause != Cause::Other || queue.review_at != AT_ONCE {
        queue.cause = cause;
    }
}
