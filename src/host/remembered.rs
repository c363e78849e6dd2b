//! What the module remembers of one lock that somebody waits for, or that belongs to a connection.

use super::key::Key;
use super::state;
use crate::core::{QueueId, SessionId, TakeBack, TakeBackId};

/// Where in the module's memory a lock is found.
#[derive(Clone, Copy)]
pub struct Remembered {
    pub queue: Option<QueueId>,
    pub session: Option<SessionId>,
    pub take_back: Option<TakeBackId>,
}

impl Remembered {
    /// `None` if nothing is remembered. To be asked for after the key was opened: that may call back, and change the
    /// answer.
    #[inline]
    pub fn of(key: &Key<'_>) -> Option<Self> {
        // The common case needs neither the database nor a look-up.
        if state::with(|state| state.is_idle()) { None } else { Self::find(key) }
    }

    fn find(key: &Key<'_>) -> Option<Self> {
        let (db, name) = (key.ctx.db(), key.name.bytes());
        let found = state::with(|state| {
            if let Some(session) = state.sessions.orphan(db, name) {
                state.take_backs.add(TakeBack::of_session(session));
            }
            Self {
                queue: state.room.queue_of(db, name),
                session: state.sessions.of(db, name),
                take_back: state.take_backs.of(db, name),
            }
        });
        (found.queue.is_some() || found.session.is_some() || found.take_back.is_some()).then_some(found)
    }
}
