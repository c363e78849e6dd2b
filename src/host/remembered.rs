//! What the module remembers of one lock: nothing, for a lock that nobody waits for and that belongs to no connection.

use super::key::Key;
use super::state;
use crate::core::{QueueId, SessionId, TakeBackId};

/// Where in the module's memory a lock is found.
#[derive(Clone, Copy)]
pub struct Remembered {
    pub queue: Option<QueueId>,
    pub session: Option<SessionId>,
    pub take_back: Option<TakeBackId>,
}

impl Remembered {
    pub const NOTHING: Self = Self { queue: None, session: None, take_back: None };

    /// To be asked for after the key was opened: that may call back, and change the answer.
    pub fn of(key: &Key<'_>) -> Self {
        if state::with(|state| state.is_idle()) {
            return Self::NOTHING; // The common case needs neither the database nor a look-up.
        }
        let (db, name) = (key.ctx.db(), key.name.bytes());
        state::with(|state| Self {
            queue: state.room.queue_of(db, name),
            session: state.sessions.of(db, name),
            take_back: state.take_backs.of(db, name),
        })
    }

    pub fn is_something(self) -> bool {
        self.queue.is_some() || self.session.is_some() || self.take_back.is_some()
    }
}
