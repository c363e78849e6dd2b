//! All that the module remembers between two calls.

use std::collections::VecDeque;
use std::rc::Rc;

use super::background::slot_watch::SlotWatch;
use super::refusal_log::Refusals;
use super::settings::RECOVERY_MS;
use super::waiting::pending_replies::PendingReplies;
use crate::core::{
    BackOff, DeferredFree, REPLICA_CHECK_MS, Recovery, ReplicaWatch, Revocations, Sessions, StallDetector, Stats,
    WaitQueues,
};
use crate::server;

/// The module: locks.
pub struct Locks;

/// A context of the server, in a call of this module.
pub type Context<'c> = server::Context<'c, Locks>;

/// An open key, in a call of this module.
pub type Key<'k, 'c> = server::Key<'k, 'c, Locks>;

/// The module's state. It has no entry for a lock without waiters and without a session.
pub struct State {
    pub waiting: WaitQueues,
    pub pending: PendingReplies,
    pub sessions: Sessions,
    /// Locks to be taken back from connections that are gone.
    pub revocations: Revocations,
    /// What is left of sessions and revocations that were given up together.
    pub deferred_free: DeferredFree,
    /// Runs while there may be something to write.
    pub stall: StallDetector,
    pub recovery: Recovery,
    /// Whether a standstill matters although there is nothing to do: grants are held back after it.
    pub watches_stalls: bool,
    pub replica_watch: ReplicaWatch,
    pub slots: SlotWatch,
    /// Messages that are published in the next run of the background work, in this order.
    pub postponed: VecDeque<(Rc<[u8]>, Vec<u8>)>,
    /// How many entries have been worked off within tasks since this run of the background work began: requests that were
    /// told of a grant, or that nobody listened for, and shares that were removed or given back.
    pub spent: usize,
    /// How many waiters have ended with their connections since the last run of the background work.
    pub ended: usize,
    /// Whether a lock has had a batch of grants, or of shares given back, since this run of the background work began, and has more
    /// to do. Then the server serves its clients, and other locks have their turn, before another batch.
    pub had_batch: bool,
    /// The number of queue entries of one lock that are granted it in one step, [`MAX_BATCH`] but in some tests.
    pub batch: usize,
    /// The number of runs of the background work that have begun.
    pub run: u32,
    /// Whether the server refuses writes, and when it is asked again.
    pub refused: BackOff,
    pub stats: Stats,
    pub refusals: Refusals,
}

/// The number of queue entries of one lock that are granted it in one step, or found without a subscriber.
pub const MAX_BATCH: usize = 100;

server::module_state!(STATE: State = State::new());

/// Lends the state to `body`, which must not call the server: the server may call back.
///
/// # Panics
///
/// If the state is lent already.
#[inline(always)]
pub fn with<R>(body: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(body)
}

/// Returns how much the module remembers of clients and locks, which is nothing when everybody has left.
#[cfg(feature = "simulated")]
pub fn entry_count() -> usize {
    with(|State { waiting, pending, sessions, revocations, .. }| {
        [waiting.entry_count(), pending.entry_count(), sessions.entry_count(), revocations.entry_count()].iter().sum()
    })
}

/// Sets the number of queue entries of one lock that are granted it in one step, so that few waiters are a long queue.
#[cfg(feature = "simulated")]
pub fn set_batch(batch: usize) {
    with(|state| state.batch = batch);
}

impl State {
    pub const fn new() -> Self {
        Self {
            waiting: WaitQueues::new(),
            pending: PendingReplies::new(),
            sessions: Sessions::new(),
            revocations: Revocations::new(),
            deferred_free: DeferredFree::new(),
            stall: StallDetector::new(),
            recovery: Recovery::new(),
            watches_stalls: false,
            replica_watch: ReplicaWatch::new(),
            slots: SlotWatch::new(),
            postponed: VecDeque::new(),
            spent: 0,
            ended: 0,
            had_batch: false,
            batch: MAX_BATCH,
            run: 1,
            refused: BackOff::new(),
            stats: Stats::new(),
            refusals: Refusals::new(),
        }
    }

    /// Forgets what only a master may act on, when the server becomes a master or a replica. The leases go on.
    pub fn clear_master_state(&mut self) {
        self.revocations.clear(&mut self.deferred_free);
        self.sessions.end_all(&mut self.deferred_free);
        self.waiting.drop_detached_entries();
    }

    /// Returns whether a connection owns a lock, or has owned one that is not taken back yet.
    pub fn has_owners(&self) -> bool {
        !self.sessions.is_empty() || !self.revocations.is_empty()
    }

    /// Returns whether there may be something to write in the background: a client waits, a grant is on its way to one, or a
    /// connection owns a lock.
    pub fn has_work(&self) -> bool {
        self.waiting.waiter_count() > 0 || self.pending.has_deliveries() || self.has_owners()
    }

    /// Returns whether stalls of the event loop matter: there is work, or one stall has ended only just and another may follow
    /// before there is work again.
    pub fn must_tick(&self) -> bool {
        self.has_work()
            || self.watches_stalls
            || self.stall.is_running() && self.stall.suspends_writes(server::monotonic_ms())
    }

    /// Returns for how long nobody is granted a lock that he does not hold already, in milliseconds, or 0.
    pub fn grants_suspended_ms(&self) -> i64 {
        let length_ms = RECOVERY_MS.get();
        if length_ms == 0 {
            return 0;
        }
        let now = server::monotonic_ms();
        let until_next_check_ms = if self.replica_watch.lacks_replicas() { REPLICA_CHECK_MS } else { 0 };
        self.recovery.remaining_ms(length_ms, now).max(self.stall.suspended_ms(now)).max(until_next_check_ms)
    }

    /// Records that entries were worked off within a task.
    pub fn spend(&mut self, entries: usize) {
        self.spent = self.spent.saturating_add(entries);
    }

    /// Returns whether there is something to do at once that writes nothing: to tell those who are lost, to look at locks in a
    /// round, or to free what is left.
    pub fn must_run_soon(&self) -> bool {
        self.pending.has_ended()
            || self.waiting.has_aborted()
            || self.waiting.is_sweeping()
            || !self.postponed.is_empty()
            || !self.deferred_free.is_empty()
    }

    /// Returns whether there is no queue, no session and no revocation.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sessions.is_empty() && self.revocations.is_empty()
    }
}
