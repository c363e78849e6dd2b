//! The tasks of the background work, and the time of the next one.

use super::Locks;
use super::record::{EntryId, HoldId, Record, RecordId};
use super::types::WaiterId;
use crate::core::tables::{AT_ONCE, Entry, NEVER, Slot};
use crate::core::{OrBug, UnixMs};

/// A task that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// The lock of this queue may be free, and its key is to be checked.
    Review(RecordId),
    /// External writes may have removed shares of this lock, and the next of those with a session are to be checked.
    Recheck(RecordId),
    /// Release the lock on behalf of a disconnected holder. The task stays due until the revocation is removed or postponed.
    Revoke(HoldId),
    /// Renew the lease of a session, which has no next renewal until one is scheduled.
    Renew(HoldId),
    /// Check whether the lock of a session is still held.
    Check(HoldId),
    /// Check whether the slot of this lock is on another node.
    CheckSlot(RecordId),
    /// The request of this entry has timed out. The task stays due until the request is [withdrawn](Locks::withdraw).
    TimedOut(EntryId),
    /// This server cannot continue the wait.
    Aborted(WaiterId),
    /// A step that changes these tables alone. There is nothing left to do.
    Done,
}

/// What may write to the key of a lock. The order is that of what is due at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Review,
    Revoke(Slot),
    Renew(Slot),
    /// Continue to return the shares of the lock to their sessions.
    Return,
}

impl Entry for Work {
    const LEAST: Self = Self::Review;
}

/// A source of tasks.
type Source = fn(&mut Locks, UnixMs, bool) -> Option<Task>;

/// The sources, which take turns, each with whether its tasks may write to keys.
const SOURCES: [(bool, Source); 10] = [
    (true, |locks, _, _| locks.pop_review_of_all()),
    (true, |locks, now, _| locks.pop_work(now)),
    (false, Locks::pop_time_out),
    (false, |locks, _, _| locks.next_recheck().map(Task::Recheck)),
    (true, |locks, _, _| locks.checks.next(&locks.holds).map(Task::Check)),
    (false, |locks, _, _| locks.slot_sweep.next(&locks.records).map(Task::CheckSlot)),
    (false, |locks, _, _| locks.pop_aborted()),
    (false, |locks, now, _| locks.pop_dropped(now)),
    // Until the lock can be released, an event of its key may end the session.
    (true, |locks, _, _| locks.detach_closed().then_some(Task::Done)),
    (false, |locks, _, _| locks.forget_ended().then_some(Task::Done)),
];

impl Locks {
    /// Returns the earliest time at which a task is due, or without `may_write` one that writes to no key. [`UnixMs::MIN`] means
    /// now.
    pub fn next_due(&self, may_write: bool) -> Option<UnixMs> {
        let is_due = self.drops_detached
            || self.is_forgetting()
            || self.slot_sweep.has_more()
            || !self.aborted.is_empty()
            || !self.rechecks.is_empty();
        let may_sweep =
            may_write && (self.review.has_more() || self.checks.has_more() || self.connections.has_closed());
        let timed = [self.deadlines.earliest(), self.detached.earliest()];
        let work = self.work.earliest().filter(|_| may_write);
        let next = if is_due || may_sweep { Some(AT_ONCE) } else { timed.into_iter().chain([work]).flatten().min() };
        debug_assert_ne!(next, Some(NEVER), "work without a time is scheduled");
        next
    }

    /// Returns a task that is due at `now`, or without `may_write` one that writes to no key.
    ///
    /// A review of a lock comes before the time-outs of its requests, so a lock that became free before a deadline is still granted,
    /// unless its review has stopped after a batch.
    pub fn next_task(&mut self, now: UnixMs, may_write: bool) -> Option<Task> {
        let turns = SOURCES.iter().enumerate().cycle().skip(self.next_source).take(SOURCES.len());
        for (number, (_, source)) in turns.filter(|(_, (writes, _))| may_write || !writes) {
            if let Some(task) = source(self, now, may_write) {
                self.next_source = number.saturating_add(1);
                return Some(task);
            }
        }
        None
    }

    /// Takes one item of the lock whose turn it is.
    fn pop_work(&mut self, now: UnixMs) -> Option<Task> {
        let id = self.records.id_at(self.work.turn(now)?).or_bug("a lock on the agenda does not exist")?;
        let item = self.next_item(id, now);
        let task = match item.or_bug("a lock has its turn without work")? {
            Work::Review => self.take_review(id),
            Work::Revoke(hold) => self.holds.id_at(hold).map(Task::Revoke),
            Work::Renew(hold) => self.take_renewal(hold),
            Work::Return if self.shares_of(id).is_none() => {
                self.drop_holds_if_unused(id); // All holds were dropped.
                None
            }
            Work::Return => self.take_return(id),
        };
        if let Some(Record { work_place, .. }) = self.records.get_mut(id) {
            self.work.end_turn(id.slot(), work_place, now);
        }
        Some(task.unwrap_or(Task::Done))
    }

    /// Returns the next item of a lock. The review, what is due immediately, and what is due by time take turns.
    fn next_item(&mut self, id: RecordId, now: UnixMs) -> Option<Work> {
        const KINDS: u8 = 3;
        let record = self.records.get_mut(id)?;
        let first = |from, until| {
            let items = self.work.items_of(id.slot(), from).take_while(|(time, _)| *time <= until);
            items.map(|(_, item)| item).find(|item| *item != Work::Review)
        };
        for kind in (0..KINDS).cycle().skip(record.next_kind.into()).take(KINDS.into()) {
            let found = match kind {
                0 => Some(Work::Review).filter(|_| record.queue.review_at <= now),
                1 => first(AT_ONCE, AT_ONCE),
                _ => first(0, now),
            };
            if found.is_some() {
                record.next_kind = kind.saturating_add(1) % KINDS;
                return found;
            }
        }
        None
    }

    fn take_renewal(&mut self, hold: Slot) -> Option<Task> {
        let id = self.holds.id_at(hold).or_bug("a renewal has no hold")?;
        self.schedule_renewal_at(id, NEVER);
        Some(Task::Renew(id))
    }

    /// Adds, moves or removes an item of a lock: from the time `from` to the time `to`, where [`NEVER`] means that there is none.
    pub(super) fn reschedule(&mut self, id: RecordId, item: Work, from: UnixMs, to: UnixMs) {
        if from == to {
            return;
        }
        if let Some(record) = self.records.get_mut(id).or_bug("a lock with work does not exist") {
            self.work.remove(id.slot(), &mut record.work_place, from, item);
            self.work.insert(id.slot(), &mut record.work_place, to, item);
        }
    }

    /// Returns a request whose deadline has passed, or the review of its lock if that is due before.
    fn pop_time_out(&mut self, now: UnixMs, may_write: bool) -> Option<Task> {
        let id = self.records.id_at(self.deadlines.turn(now)?).or_bug("a lock with deadlines does not exist")?;
        let next = self.deadlines.items_of(id.slot(), AT_ONCE).next();
        let (deadline, entry) = next.or_bug("a lock has its turn without a deadline")?;
        debug_assert!(deadline <= now, "a turn comes before its deadline");
        if may_write && self.take_review_before(id, deadline) {
            return Some(Task::Review(id));
        }
        let record = self.records.get_mut(id)?;
        self.deadlines.end_turn(id.slot(), &mut record.queue.time_out_place, now);
        self.entries.id_at(entry).or_bug("an entry with a deadline does not exist").map(Task::TimedOut)
    }

    fn pop_aborted(&mut self) -> Option<Task> {
        self.next_aborted().map(|waiter| waiter.map_or(Task::Done, Task::Aborted))
    }

    /// Drops a detached entry whose time has passed, or any detached entry if all are to be dropped.
    fn pop_dropped(&mut self, now: UnixMs) -> Option<Task> {
        let entry = if self.drops_detached { self.detached.first() } else { self.detached.first_due(now) };
        let dropped = entry.and_then(|entry| self.remove_entry(entry));
        self.drops_detached &= self.detached.first().is_some();
        dropped.map(|_| Task::Done)
    }
}
