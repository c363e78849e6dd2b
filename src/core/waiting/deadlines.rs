//! The deadlines of waiting requests.
//!
//! Of the locks that have requests whose time is up, each has one request answered in turn. So a lock with very many such requests
//! does not delay the time-outs of another.

use std::collections::BTreeSet;

use super::types::{Queue, QueueId, RequestId};
use crate::core::UnixMs;
use crate::core::slab::Slot;
use crate::core::timer_queue::{NEVER, TimerQueue};

/// Deadlines, ordered by their queues and then by time.
pub struct Deadlines {
    /// All queues share one set: a set for each would take the space of a dozen deadlines where there is only one.
    /// A request is named by its slot, which takes half the space of its handle.
    by_queue: BTreeSet<(Slot, UnixMs, Slot)>,
    /// The turn of each queue: its earliest deadline, or the time when it last had a turn if that is later.
    turns: TimerQueue<QueueId>,
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

    /// Adds a deadline. [`NEVER`] adds nothing.
    pub fn insert(&mut self, id: QueueId, queue: &mut Queue, time: UnixMs, request: RequestId) {
        if time == NEVER {
            return;
        }
        self.by_queue.insert((id.slot(), time, request.slot()));
        if time < queue.next_time_out {
            self.set_turn(id, queue, time);
        }
    }

    /// Removes a deadline, which was added with this time.
    pub fn remove(&mut self, id: QueueId, queue: &mut Queue, time: UnixMs, request: RequestId) {
        if time == NEVER {
            return;
        }
        self.by_queue.remove(&(id.slot(), time, request.slot()));
        if time <= queue.next_time_out {
            let earliest = self.first_of(id).map_or(NEVER, |(earliest, _)| earliest);
            self.set_turn(id, queue, earliest.max(queue.next_time_out));
        }
    }

    /// Returns the time when a request is to be answered next.
    pub fn earliest(&self) -> Option<UnixMs> {
        self.turns.earliest()
    }

    /// Returns the queue that has its turn at `now`, with its earliest deadline and the slot of that request.
    pub fn first_due(&self, now: UnixMs) -> Option<(QueueId, UnixMs, Slot)> {
        let queue = self.turns.first().filter(|_| self.turns.earliest().is_some_and(|turn| turn <= now))?;
        self.first_of(queue).map(|(time, request)| (queue, time, request))
    }

    /// Ends the turn of a queue: others that are due at `now` come first.
    pub fn end_turn(&mut self, id: QueueId, queue: &mut Queue, now: UnixMs) {
        self.set_turn(id, queue, queue.next_time_out.max(now));
    }

    /// Returns the earliest deadline of a queue.
    fn first_of(&self, id: QueueId) -> Option<(UnixMs, Slot)> {
        let slot = id.slot();
        let &(found, time, request) = self.by_queue.range((slot, UnixMs::MIN, Slot::MIN)..).next()?;
        (found == slot).then_some((time, request))
    }

    fn set_turn(&mut self, id: QueueId, queue: &mut Queue, turn: UnixMs) {
        self.turns.reschedule(id, queue.next_time_out, turn);
        queue.next_time_out = turn;
    }
}
