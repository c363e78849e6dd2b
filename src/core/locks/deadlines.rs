//! The deadlines of waiting requests.
//!
//! Locks with requests that have timed out take turns: one request of each is replied to, however many of one lock there are.

use std::collections::BTreeSet;

use super::record::{Queue, RecordId};
use super::types::EntryId;
use crate::core::tables::Slot;
use crate::core::tables::{NEVER, TimerQueue};
use crate::core::{OrBug, UnixMs, check};

/// Deadlines, ordered by their queues and then by time.
pub struct Deadlines {
    /// Queue, time and entry. Slots take half the memory of handles, and a set for each queue that of a dozen deadlines.
    by_queue: BTreeSet<(Slot, UnixMs, Slot)>,
    /// The turn of each queue: its earliest deadline, or the time of its last turn if that is later.
    turns: TimerQueue<RecordId>,
}

impl Deadlines {
    pub const fn new() -> Self {
        Self { by_queue: BTreeSet::new(), turns: TimerQueue::new() }
    }

    /// Returns the number of entries of all kinds.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        self.by_queue.len().saturating_add(self.turns.entry_count())
    }

    /// Returns whether a deadline is scheduled.
    #[cfg(test)]
    pub fn has(&self, id: RecordId, time: UnixMs, request: EntryId) -> bool {
        self.by_queue.contains(&(id.slot(), time, request.slot()))
    }

    /// Panics if the turn of a queue is before its earliest deadline, or exists without deadlines.
    #[cfg(test)]
    pub fn check_turn(&self, id: RecordId, queue: &Queue) {
        match self.first_of(id) {
            Some((time, _)) => assert!(queue.next_time_out >= time && queue.next_time_out != NEVER),
            None => assert_eq!(queue.next_time_out, NEVER),
        }
    }

    /// Adds a deadline. [`NEVER`] adds nothing.
    pub fn insert(&mut self, id: RecordId, queue: &mut Queue, time: UnixMs, request: EntryId) {
        if time == NEVER {
            return;
        }
        check(self.by_queue.insert((id.slot(), time, request.slot())), "a deadline is scheduled twice");
        if time < queue.next_time_out {
            self.set_turn(id, queue, time);
        }
    }

    /// Removes a deadline that was added with this time.
    pub fn remove(&mut self, id: RecordId, queue: &mut Queue, time: UnixMs, request: EntryId) {
        if time == NEVER {
            return;
        }
        check(self.by_queue.remove(&(id.slot(), time, request.slot())), "a deadline is not scheduled");
        if time <= queue.next_time_out {
            let earliest = self.first_of(id).map_or(NEVER, |(earliest, _)| earliest);
            self.set_turn(id, queue, earliest.max(queue.next_time_out));
        }
    }

    /// Returns the time of the next time-out.
    pub fn earliest(&self) -> Option<UnixMs> {
        self.turns.earliest()
    }

    /// Returns the queue that has its turn at `now`, with its earliest deadline and the slot of that request.
    pub fn next_due(&mut self, now: UnixMs) -> Option<(RecordId, UnixMs, Slot)> {
        let queue = self.turns.turn(now)?;
        let (time, request) = self.first_of(queue).or_bug("a queue with a turn has no deadline")?;
        debug_assert!(time <= now, "a turn comes before its deadline");
        Some((queue, time, request))
    }

    /// Ends the turn of a queue: other queues that are due at `now` have theirs first.
    pub fn end_turn(&mut self, id: RecordId, queue: &mut Queue, now: UnixMs) {
        debug_assert!(queue.next_time_out <= now, "a turn ends before it is due");
        self.set_turn(id, queue, queue.next_time_out.max(now));
    }

    /// Returns the earliest deadline of a queue.
    fn first_of(&self, id: RecordId) -> Option<(UnixMs, Slot)> {
        let slot = id.slot();
        let &(found, time, request) = self.by_queue.range((slot, UnixMs::MIN, Slot::MIN)..).next()?;
        (found == slot).then_some((time, request))
    }

    fn set_turn(&mut self, id: RecordId, queue: &mut Queue, turn: UnixMs) {
        self.turns.reschedule(id, queue.next_time_out, turn);
        queue.next_time_out = turn;
    }
}
