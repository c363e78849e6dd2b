//! Handles to what the module remembers of one lock.

use super::state::{self, Key};
use crate::core::{QueueId, Revocation, RevocationId, SessionId};

/// The queue, the session and the revocation of a lock, as far as there are any.
#[derive(Clone, Copy)]
pub struct LockHandles {
    pub queue: Option<QueueId>,
    pub session: Option<SessionId>,
    pub revocation: Option<RevocationId>,
}

impl LockHandles {
    /// Looks up the handles of a lock. Returns `None` if there are none.
    ///
    /// Call this after the key was opened, because that may call back and change the result.
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
