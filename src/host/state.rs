//! All that the module remembers between two calls.

use super::clients::BlockedClients;
use crate::core::{Revocations, Sessions, StallDetector, Stats, WaitQueues};
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
    pub blocked: BlockedClients,
    pub sessions: Sessions,
    /// Locks to be taken back from connections that are gone.
    pub revocations: Revocations,
    /// Runs while there may be something to write.
    pub stall: StallDetector,
    /// Whether the server has refused a write since this run of the background work began.
    pub write_refused: bool,
    pub stats: Stats,
}

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
    with(|State { waiting, blocked, sessions, revocations, .. }| {
        [waiting.entry_count(), blocked.entry_count(), sessions.entry_count(), revocations.entry_count()].iter().sum()
    })
}

impl State {
    pub const fn new() -> Self {
        Self {
            waiting: WaitQueues::new(),
            blocked: BlockedClients::new(),
            sessions: Sessions::new(),
            revocations: Revocations::new(),
            stall: StallDetector::new(),
            write_refused: false,
            stats: Stats::new(),
        }
    }

    /// Forgets what only a master may act on, when the server becomes a master or a replica. The leases go on.
    pub fn clear_master_state(&mut self) {
        planted!(StateOutlivesRole => return);
        planted!(RevocationOutlivesRole => return self.sessions.end_all());
        self.revocations.clear();
        self.sessions.end_all();
        self.waiting.drop_away_places();
    }

    /// Returns whether a connection owns a lock, or has owned one that is not taken back yet.
    pub fn has_owners(&self) -> bool {
        !self.sessions.is_empty() || !self.revocations.is_empty()
    }

    /// Returns whether there may be something to write in the background: a client waits, a grant is on its way to one, or a
    /// connection owns a lock.
    pub fn has_work(&self) -> bool {
        self.waiting.waiter_count() > 0 || self.blocked.has_deliveries() || self.has_owners()
    }

    /// Returns whether stalls of the event loop matter: there is work, or one stall has ended only just and another may follow
    /// before there is work again.
    pub fn must_tick(&self) -> bool {
        self.has_work() || self.stall.is_running() && self.stall.is_holding_off(server::monotonic_ms())
    }

    /// Returns whether there is no queue, no session and no revocation.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sessions.is_empty() && self.revocations.is_empty()
    }
}
