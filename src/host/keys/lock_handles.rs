//! Handles to what the module remembers of one lock.

use crate::core::{HoldKey, Kind, QueueId, Revocation, RevocationId, SessionId};
use crate::host::state::{self, Key};
use crate::server::ValueType;

/// The queue, the session and the revocation of a lock, as far as there are any.
#[derive(Clone, Copy)]
pub struct LockHandles {
    pub queue: Option<QueueId>,
    /// The session of a lock that is held alone.
    pub session: Option<SessionId>,
    /// The revocation of a lock that is held alone.
    pub revocation: Option<RevocationId>,
    /// Whether shares of the lock have sessions.
    pub has_share_sessions: bool,
}

/// Returns the seat of a token's share of a lock.
pub fn share_hold_key<'n>(key: &Key<'n, '_>, token: &'n [u8]) -> HoldKey<'n> {
    HoldKey::of(key.ctx().db(), key.name().bytes(), Kind::Shared, token)
}

/// Returns the seat of a holder of the lock as it is, alone or of a share.
pub fn hold_key_of<'n>(key: &Key<'n, '_>, holder: &'n [u8]) -> HoldKey<'n> {
    if key.value_type() == ValueType::SortedSet {
        share_hold_key(key, holder)
    } else {
        HoldKey::whole(key.ctx().db(), key.name().bytes())
    }
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
        let hold_key = HoldKey::whole(db, name);
        let found = state::with(|state| {
            if let Some(session) = state.sessions.take_orphan(hold_key) {
                state.revocations.add(Revocation::of_session(session));
            }
            Self {
                queue: state.waiting.queue_of(db, name),
                session: state.sessions.find(hold_key),
                revocation: state.revocations.find(hold_key),
                has_share_sessions: state.sessions.has_shares(db, name),
            }
        });
        let Self { queue, session, revocation, has_share_sessions } = found;
        (queue.is_some() || session.is_some() || revocation.is_some() || has_share_sessions).then_some(found)
    }
}
