//! The reviews of locks that are scheduled: immediate ones, which take turns, and those that are due at a time.
//!
//! The two kinds are separate sources of work. A lock that is to be reviewed again and again, because its waiters leave one by
//! one, delays neither the immediate reviews of other locks nor the ends of their leases.

use super::record::{Queue, RecordId};
use crate::core::UnixMs;
use crate::core::tables::{NEVER, TimerQueue};

/// The time of an immediate review that has no turn yet.
pub const AT_ONCE: UnixMs = UnixMs::MIN;

/// Scheduled reviews. Each queue has at most one, and stores its time or turn.
pub struct Reviews {
    /// Immediate reviews, by their turns. A turn is a negative number, so it is before every time.
    immediate: TimerQueue<RecordId>,
    timed: TimerQueue<RecordId>,
    last_turn: UnixMs,
}

impl Reviews {
    pub const fn new() -> Self {
        Self { immediate: TimerQueue::new(), timed: TimerQueue::new(), last_turn: AT_ONCE }
    }

    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        self.immediate.entry_count().saturating_add(self.timed.entry_count())
    }

    /// Schedules the review of a queue at `time`, in place of an earlier one. [`NEVER`] cancels it. An immediate review that is
    /// scheduled again keeps its turn.
    pub fn schedule(&mut self, id: RecordId, queue: &mut Queue, time: UnixMs) {
        debug_assert!(time == AT_ONCE || !is_immediate(time), "a turn is given here");
        if is_immediate(queue.review_at) && time == AT_ONCE {
            return;
        }
        self.of(queue.review_at).reschedule(id, queue.review_at, NEVER);
        queue.review_at = if time == AT_ONCE { self.next_turn() } else { time };
        self.of(queue.review_at).reschedule(id, NEVER, queue.review_at);
    }

    /// Returns the time of the next review: [`AT_ONCE`] for an immediate one.
    pub fn next_due(&self) -> Option<UnixMs> {
        self.immediate.earliest().map(|_| AT_ONCE).or_else(|| self.timed.earliest())
    }

    /// Returns the queue of the next immediate review.
    pub fn next_immediate(&mut self) -> Option<RecordId> {
        self.immediate.turn(UnixMs::MAX)
    }

    /// Returns the queue whose review is due at `now`.
    pub fn next_timed(&mut self, now: UnixMs) -> Option<RecordId> {
        self.timed.turn(now)
    }

    fn next_turn(&mut self) -> UnixMs {
        debug_assert!(self.last_turn < -1, "a turn is before every time");
        self.last_turn = self.last_turn.saturating_add(1);
        self.last_turn
    }

    fn of(&mut self, time: UnixMs) -> &mut TimerQueue<RecordId> {
        if is_immediate(time) { &mut self.immediate } else { &mut self.timed }
    }
}

pub fn is_immediate(time: UnixMs) -> bool {
    time < 0
}
