//! What the module remembers of one lock that somebody waits for, or that belongs to a connection.

use super::state::{self, Key};
use crate::core::{QueueId, Revocation, RevocationId, SessionId};

/// Where in the module's memory a lock is found.
#[derive(Clone, Copy)]
pub struct LockHandles {
    pub queue: Option<QueueId>,
    pub session: Option<SessionId>,
    pub revocation: Option<RevocationId>,
}

impl LockHandles {
    /// `None` if nothing is tracked. To be asked for after the key was opened: that may call back, and change the
    /// answer.
    #[inline]
    pub fn of(key: &Key<'_, '_>) -> Option<Self> {
        // The common case needs neither the database nor a look-up.
        if state::with(|state| state.is_idle()) { None } else { Self::find(key) }
    }

    fn find(key: &Key<'_, '_>) -> Option<Self> {
        let (db, name) = (key.ctx().db(), key.name().bytes());
        let found = state::with(|state| {
            if let Some(session) = state.sessions.take_orphan(db, name) {
                state.revocations.add(Revocation::of_session(session));
            }
            Self {
                queue: state.waiting.queue_of(db, name),
                session: state.sessions.find(db, name),
                revocation: state.revocations.find(db, name),
            }
        });
        (found.queue.is_some() || found.session.is_some() || found.revocation.is_some()).then_some(found)
    }
}
