//! The module's state: everything that it keeps between two calls.

pub mod pending_replies;
mod refusal_log;
mod slot_watch;

use std::collections::VecDeque;
use std::rc::Rc;

use super::settings::RECOVERY_MS;
use crate::core::{BackOff, REPLICA_CHECK_MS, RecordId, Recovery, ReplicaWatch, StallDetector, Stats, UnixMs};
#[cfg(feature = "simulated")]
use crate::core::{LockView, SlowWait};
use crate::server::{self, Server};
use pending_replies::PendingReplies;
use refusal_log::Refusals;
use slot_watch::SlotWatch;

/// The module.
pub struct Locks;

/// A context of the server, in a call of this module.
pub type Context<'c> = server::Context<'c, Locks>;

/// An open key, in a call of this module.
pub type Key<'k, 'c> = server::Key<'k, 'c, Locks>;

/// The module's state. It has no entry for a lock without waiters and without a session.
pub struct State {
    pub locks: crate::core::Locks,
    pub pending: PendingReplies,
    /// Detects stalls of the event loop. Runs while stalls matter, see [`State::must_tick`].
    pub stall: StallDetector,
    pub recovery: Recovery,
    /// Whether grants are suspended in this step. It is valid while `lock.recovery-ms` is set, see [`Step::begin`].
    pub suspends_grants: bool,
    /// Whether a stall matters although there is no work: grants are suspended after it.
    pub watches_stalls: bool,
    pub replica_watch: ReplicaWatch,
    pub slots: SlotWatch,
    /// Messages that are published in the next run of the background work, in this order.
    pub postponed: VecDeque<(Rc<[u8]>, Vec<u8>)>,
    /// The number of waiters that have ended with their connections since the last run of the background work.
    pub ended: usize,
    /// Counts the tasks of the background work, of which every fourth is first looked for among the messages.
    pub turn: u8,
    /// Whether the server refuses writes, and when the module asks again.
    pub refused: BackOff,
    pub stats: Stats,
    pub refusals: Refusals,
}

/// A command, or a task of the background work.
///
/// The time and whether grants are suspended are determined once in a step: two parts of it must not find different answers.
pub struct Step {
    /// The time at which the step began.
    pub now: UnixMs,
    /// The number of entries that were processed: requests that were granted a lock or had no subscriber, and shares that were
    /// removed or returned.
    pub spent: usize,
}

impl Step {
    /// Begins a command, or a run of the background work.
    #[inline(always)]
    pub fn begin(server: &Server) -> Self {
        let mut step = Self { now: UnixMs::MIN, spent: 0 };
        step.begin_task(server);
        step
    }

    /// Begins a task of a run of the background work.
    #[inline(always)]
    pub fn begin_task(&mut self, server: &Server) {
        self.now = server::now_ms();
        if RECOVERY_MS.get() > 0 {
            with(server, State::note_suspension);
        }
    }

    /// Records that this number of entries was processed.
    pub fn spend(&mut self, entries: usize) {
        self.spent = self.spent.saturating_add(entries);
    }
}

server::module_state!(STATE: State = State::new());

/// Lends the state to `body`. Panics if it is lent already.
#[inline(always)]
pub fn with<R>(server: &Server, body: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(server, body)
}

/// Lends the state to `body`, with the record of the lock of a key. Returns the default without a record.
#[inline(always)]
pub fn with_record<R: Default>(key: &Key<'_, '_>, body: impl FnOnce(&mut State, RecordId) -> R) -> R {
    with_lock(key, |state, db, name| match state.locks.record_of(db, name) {
        Some(record) => body(state, record),
        None => R::default(),
    })
}

/// Lends the state to `body`, with the database and the name of the key.
#[inline(always)]
pub fn with_lock<R>(key: &Key<'_, '_>, body: impl FnOnce(&mut State, i32, &[u8]) -> R) -> R {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    key.with_state(|state| body(state, db, name))
}

/// Returns the number of entries of all tables, which is 0 without clients, sessions and revocations.
#[cfg(feature = "simulated")]
pub fn entry_count() -> usize {
    with(&Server::between_calls(), |State { locks, pending, .. }| {
        locks.entry_count().saturating_add(pending.entry_count())
    })
}

/// Returns a copy of what the module keeps for each lock.
#[cfg(feature = "simulated")]
pub fn view() -> Vec<LockView> {
    with(&Server::between_calls(), |State { locks, .. }| locks.view())
}

/// Removes and returns the entries of the slow log, the latest first.
#[cfg(feature = "simulated")]
pub fn take_slow_log() -> Vec<SlowWait> {
    with(&Server::between_calls(), |State { locks, .. }| {
        let entries = locks.slow_log.latest().cloned().collect();
        locks.slow_log.clear();
        entries
    })
}

/// Sets the number of queue entries and shares of one lock that are processed in one step, so that a few are a long queue.
#[cfg(feature = "simulated")]
pub fn set_batch(batch: usize) {
    with(&Server::between_calls(), |state| state.locks.batch = batch);
}

impl State {
    pub const fn new() -> Self {
        Self {
            locks: crate::core::Locks::new(),
            pending: PendingReplies::new(),
            stall: StallDetector::new(),
            recovery: Recovery::new(),
            suspends_grants: false,
            watches_stalls: false,
            replica_watch: ReplicaWatch::new(),
            slots: SlotWatch::new(),
            postponed: VecDeque::new(),
            ended: 0,
            turn: 0,
            refused: BackOff::new(),
            stats: Stats::new(),
            refusals: Refusals::new(),
        }
    }

    /// Drops the state on which only a master may act, when the server becomes a master or a replica. The leases go on.
    pub fn clear_master_state(&mut self) {
        self.locks.drop_holds();
        self.locks.drop_detached_entries();
    }

    /// Returns whether a connection owns a lock, or a lock of a closed connection is still to be released.
    pub fn has_owners(&self) -> bool {
        self.locks.has_sessions() || self.locks.has_revocations()
    }

    /// Returns whether there may be something to write in the background: a client waits, a grant is being delivered, or a
    /// connection owns a lock.
    pub fn has_work(&self) -> bool {
        self.locks.waiter_count() > 0 || self.locks.has_deliveries() || self.has_owners()
    }

    /// Returns whether stalls of the event loop matter: there is work, or a stall has just ended and another may follow before
    /// there is work again.
    pub fn must_tick(&self) -> bool {
        self.has_work()
            || self.watches_stalls
            || self.stall.is_running() && self.stall.suspends_writes(server::monotonic_ms())
    }

    /// Returns whether anything may be due at some time, or the ticks of the timer are to end.
    pub fn may_need_alarm(&self) -> bool {
        // The common case first. The timer of a module that has nothing to do may still tick, which is to end.
        !self.is_idle()
            || self.stall.is_running()
            || self.watches_stalls
            || self.recovery.is_suspending()
            || self.has_messages_due()
    }

    /// Returns the earliest time at which a task is due, or without `may_write` one that writes to no key. [`UnixMs::MIN`] means
    /// now.
    pub fn next_due(&self, may_write: bool) -> Option<UnixMs> {
        if self.has_messages_due() { Some(UnixMs::MIN) } else { self.locks.next_due(may_write) }
    }

    /// Determines whether grants are suspended in this step. If they are, the end of the suspension is noticed, because a lock may
    /// have to be reviewed then.
    pub fn note_suspension(&mut self) {
        self.suspends_grants = self.grants_suspended_ms() > 0;
        if self.suspends_grants {
            self.recovery.suspend();
        }
    }

    /// Returns the time for which grants are suspended, in milliseconds, or 0. A holder may still confirm its lock.
    pub fn grants_suspended_ms(&self) -> i64 {
        let length_ms = RECOVERY_MS.get();
        if length_ms == 0 {
            return 0;
        }
        let now = server::monotonic_ms();
        let until_next_check_ms = if self.replica_watch.lacks_replicas() { REPLICA_CHECK_MS } else { 0 };
        self.recovery.remaining_ms(length_ms, now).max(self.stall.suspended_ms(now)).max(until_next_check_ms)
    }

    /// Returns whether there is immediate work apart from that of locks: to notify aborted waiters, or to publish messages.
    fn has_messages_due(&self) -> bool {
        self.pending.has_ended() || !self.postponed.is_empty()
    }

    /// Returns whether there is no queue, no session, no revocation and no delivery.
    pub fn is_idle(&self) -> bool {
        self.locks.is_empty()
    }

    /// Asserts what holds between two calls of the module.
    pub fn check_invariants(&self) {
        let waiters = self.locks.waiter_count();
        debug_assert!(waiters == 0 || !self.locks.has_no_entries(), "a waiter has a queue entry");
        debug_assert!(self.pending.pubsub_count() <= waiters, "a request that is notified by message waits");
        debug_assert!(self.pending.session_waiters() <= waiters, "a request for a session waits");
    }
}
