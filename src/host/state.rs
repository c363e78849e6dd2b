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

/// The module's memory. A lock that nobody waits for and that has no session leaves nothing here.
pub struct State {
    pub waiting: WaitQueues,
    pub blocked: BlockedClients,
    pub sessions: Sessions,
    /// Locks that are to be taken from connections that are gone.
    pub revocations: Revocations,
    /// On while there may be anything to write.
    pub stall: StallDetector,
    /// The server has refused a write since the pump began.
    pub write_refused: bool,
    pub stats: Stats,
}

server::module_state!(STATE: State = State::new());

/// Lends the state to `body`, which must not call the server: the server may call back, and the state is lent once.
#[inline(always)]
pub fn with<R>(body: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(body)
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

    /// Forgets what only a master may act on, as its reign begins or ends: the leases run on.
    pub fn clear_master_state(&mut self) {
        self.revocations.clear();
        self.sessions.end_all();
        self.waiting.drop_away_places();
    }

    /// Whether a connection owns a lock, or has owned one that is not given up yet.
    pub fn has_owners(&self) -> bool {
        !self.sessions.is_empty() || !self.revocations.is_empty()
    }

    /// Whether there may be something to write of the module's own accord: somebody waits, or a connection owns a lock.
    pub fn has_work(&self) -> bool {
        self.waiting.waiter_count() > 0 || self.has_owners()
    }

    /// Whether nobody waits for any lock, and no lock belongs to a connection that is there or was.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sessions.is_empty() && self.revocations.is_empty()
    }
}
