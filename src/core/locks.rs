//! The locks that the module keeps something for: their queues, and their holds with a session, a revocation or a delivery.
//!
//! A lock has one **record**, which exists while it has a queue entry or a hold. It is found by name once in a command, and then by
//! its handle.

mod contention;
mod deliveries;
mod ends;
mod entries;
mod handles;
mod holds;
mod queue_order;
mod queues;
mod record;
mod reviews;
mod revocations;
mod sessions;
mod tasks;
mod types;
#[cfg(feature = "simulated")]
mod view;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::rc::Rc;

use super::limits::MAX_BATCH;
use super::tables::NEVER;
use super::tables::{Agenda, Arena, Connections, IncrementalTable, Slot, Sweep, TimerQueue};
use super::{OrBug, SlowLog, UnixMs, check};
use holds::EndedShares;
use queue_order::QueueOrder;
use record::{Queue, QueueEntry};
use tasks::Work;

pub use handles::Handles;
pub use queues::JoinOutcome;
pub use record::{Delivery, DeliveryId, EntryId, Hold, HoldId, Record, RecordId, Revocation};
#[cfg(feature = "simulated")]
pub use record::{Session, SessionLeaseEnd};
pub use sessions::{MIN_SESSION_LEASE_MS, NewSession, ShareBatch};
pub use tasks::Task;
pub use types::{Claim, Contended, Contention, Grant, HoldKey, JoinRequest, Turn, Waiter, WaiterId};
#[cfg(feature = "simulated")]
pub use view::{EntryView, HoldView, LockView};

/// All records of the server, and what is due for them.
pub struct Locks {
    by_name: IncrementalTable<RecordId>,
    /// The record that was found last. The steps of one command look up the same record several times.
    last_found: Cell<Option<RecordId>>,
    records: Arena<Record>,

    entries: Arena<QueueEntry>,
    /// The number of entries whose claim is a share.
    share_entries: usize,
    /// The entries by lock and owner.
    owners: IncrementalTable<Slot>,
    order: QueueOrder,
    next_turn: u64,
    /// [`MAX_BATCH`], or less in some tests.
    pub batch: usize,
    /// What may write to the keys of locks.
    work: Agenda<Work>,
    /// The deadlines of requests, by lock.
    deadlines: Agenda<Slot>,
    /// The detached entries, by the time when they are dropped.
    detached: TimerQueue<EntryId>,
    review: Sweep,
    slot_sweep: Sweep,
    /// Queues whose waits are aborted, each with the turn from which the next task continues.
    aborted: BTreeMap<RecordId, Turn>,
    /// The source of tasks that is asked first.
    next_source: usize,
    /// Whether all detached entries are to be dropped.
    drops_detached: bool,
    /// The waits that have ended and took long. Each removal of a request adds one entry at most.
    pub slow_log: SlowLog,

    holds: Arena<Hold>,
    /// The number of times that all holds were dropped. The holds of a record that are of an earlier time have ended.
    holds_epoch: u32,
    /// The sweep that removes such holds.
    purge: Sweep,
    deliveries: Arena<Delivery>,
    /// The number of revocations.
    revocations: usize,
    connections: Connections<HoldId>,
    /// The number of sessions, without those in `ended`.
    sessions: usize,
    checks: Sweep,
    /// The locks whose shares need a recheck and are not being returned.
    rechecks: BTreeSet<RecordId>,
    /// Holds of shares that have ended together, by lock. They are removed one by one. Some may have been removed already.
    ended: VecDeque<EndedShares>,
}

/// Returns the first millisecond at which `time` has passed. As in the server, a key that expires at t still exists at t.
fn first_expired_ms(time: UnixMs) -> UnixMs {
    // NEVER stays NEVER.
    time.saturating_add(1)
}

/// Returns the queue of a record for modification, while the other tables can be used.
fn queue_in(records: &mut Arena<Record>, id: RecordId) -> Option<&mut Queue> {
    records.get_mut(id).map(|record| &mut record.queue)
}

impl Locks {
    pub const fn new() -> Self {
        Self {
            by_name: IncrementalTable::new(),
            last_found: Cell::new(None),
            records: Arena::new(),
            entries: Arena::new(),
            share_entries: 0,
            owners: IncrementalTable::new(),
            order: QueueOrder::new(),
            next_turn: 0,
            batch: MAX_BATCH,
            work: Agenda::new(),
            deadlines: Agenda::new(),
            detached: TimerQueue::new(),
            review: Sweep::END,
            slot_sweep: Sweep::END,
            aborted: BTreeMap::new(),
            next_source: 0,
            drops_detached: false,
            slow_log: SlowLog::new(),
            holds: Arena::new(),
            holds_epoch: 0,
            purge: Sweep::END,
            deliveries: Arena::new(),
            revocations: 0,
            connections: Connections::new(),
            sessions: 0,
            checks: Sweep::END,
            rechecks: BTreeSet::new(),
            ended: VecDeque::new(),
        }
    }

    /// Returns whether there is no record, and nothing to forget about earlier ones.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.ended.is_empty() && self.aborted.is_empty()
    }

    /// Returns the number of waiting requests of all locks.
    pub fn waiter_count(&self) -> usize {
        self.order.len()
    }

    /// Returns whether there are no entries, attached or detached.
    pub fn has_no_entries(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the sum of the sizes of all tables. It is 0 when there are no records.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        let records = [self.by_name.len(), self.records.len()];
        let queues = [
            self.entries.len(),
            self.owners.len(),
            self.order.len(),
            self.work.entry_count(),
            self.deadlines.entry_count(),
            self.detached.entry_count(),
        ];
        let holds = [self.holds.len(), self.deliveries.len(), self.revocations];
        let sessions = [
            self.sessions,
            self.connections.entries().count(),
            self.rechecks.len(),
            self.ended.iter().map(ExactSizeIterator::len).sum(),
        ];
        records.into_iter().chain(queues).chain(holds).chain(sessions).sum()
    }

    /// Returns the record of a lock, if it has one.
    #[inline]
    pub fn record_of(&self, db: i32, key: &[u8]) -> Option<RecordId> {
        if self.records.is_empty() {
            return None;
        }
        let has_name = |id: &RecordId| self.records.get(*id).is_some_and(|record| record.name() == (db, key));
        let find = || self.by_name.find((db, key), has_name).copied();
        let found = self.last_found.get().filter(has_name).or_else(find)?;
        self.last_found.set(Some(found));
        Some(found)
    }

    /// Returns the database and the key of a record's lock.
    pub fn lock_of(&self, id: RecordId) -> Option<(i32, Rc<[u8]>)> {
        self.records.get(id).map(|record| (record.db(), Rc::clone(&record.key)))
    }

    /// Returns whether a lock has queue entries, attached or detached.
    pub fn has_queue(&self, id: RecordId) -> bool {
        self.queue(id).is_some_and(|queue| queue.entries > 0)
    }

    fn queue(&self, id: RecordId) -> Option<&Queue> {
        self.records.get(id).map(|record| &record.queue)
    }

    /// Returns the record of a lock, or a new one.
    fn record_for(&mut self, db: i32, key: &[u8]) -> Option<RecordId> {
        if let Some(known) = self.record_of(db, key) {
            return Some(known);
        }
        let id = self.records.insert(Record::new(db, key))?;
        self.by_name.insert(id, |hasher, id| {
            let record = self.records.get(*id).or_bug("a record in the index does not exist");
            record.map_or(0, |record| hasher.hash_one(record.name()))
        });
        Some(id)
    }

    /// Drops a record that has neither entries nor holds.
    fn drop_if_unused(&mut self, id: RecordId) {
        let is_unused = |record: &Record| record.queue.entries == 0 && record.hold_count == 0;
        if !self.records.get(id).is_some_and(is_unused) {
            return;
        }
        if let Some(record) = self.records.remove(id) {
            debug_assert_eq!(record.work_place, NEVER, "a lock without entries and holds has work");
            let name = self.by_name.remove(record.name(), |&other| other == id);
            check(name.is_some(), "a record has no name in the index");
        }
    }
}

#[cfg(test)]
mod invariants;
#[cfg(test)]
mod tests;
