//! Handles to the queue, the sessions and the revocation of one lock.

use crate::core::{HoldKey, Kind, QueueId, RevocationId, SessionId};
use crate::host::state::{Key, State};
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
    /// Whether shares of the lock are to be revoked.
    pub has_share_revocations: bool,
}

/// Returns the hold key of a token's share of a lock.
pub fn share_hold_key<'n>(key: &Key<'n, '_>, token: &'n [u8]) -> HoldKey<'n> {
    HoldKey::of(key.ctx().db(), key.name().bytes(), Kind::Shared, token)
}

/// Returns the hold key of a holder, by the type of the key: the whole lock, or a share.
pub fn hold_key_of<'n>(key: &Key<'n, '_>, holder: &'n [u8]) -> HoldKey<'n> {
    if key.value_type() == ValueType::SortedSet {
        share_hold_key(key, holder)
    } else {
        HoldKey::whole(key.ctx().db(), key.name().bytes())
    }
}

impl LockHandles {
    /// Returns the handles of a lock, or `None` if there are none. The key is open already: to open it may call the module back,
    /// which can change the result.
    #[inline]
    pub fn of(key: &Key<'_, '_>) -> Option<Self> {
        // The common case needs neither the database nor a lookup.
        if key.with_state(|state| state.is_idle()) { None } else { Self::find(key) }
    }

    fn find(key: &Key<'_, '_>) -> Option<Self> {
        let (db, name) = (key.ctx().db(), key.name().bytes());
        let hold_key = HoldKey::whole(db, name);
        let found = key.with_state(|state| {
            let revocation = state.revocation_of(hold_key);
            let found = Self {
                queue: state.waiting.queue_of(db, name),
                session: state.sessions.find(hold_key),
                revocation,
                has_share_sessions: state.sessions.has_shares(db, name),
                has_share_revocations: state.revocations.has_shares(db, name),
            };
            debug_assert!(found.is_consistent(state, hold_key), "a handle does not belong to the lock");
            found
        });
        let Self { queue, session, revocation, has_share_sessions, has_share_revocations } = found;
        let is_held_by_shares = has_share_sessions || has_share_revocations;
        (queue.is_some() || session.is_some() || revocation.is_some() || is_held_by_shares).then_some(found)
    }

    /// Returns whether each handle leads to an entry of this lock.
    fn is_consistent(self, state: &State, hold_key: HoldKey<'_>) -> bool {
        let State { waiting, sessions, revocations, .. } = state;
        let is_of_lock = |found: HoldKey<'_>| found == hold_key;
        let is_own_queue = |queue| waiting.lock_of(queue).is_some_and(|(db, key)| is_of_lock(HoldKey::whole(db, &key)));
        self.queue.is_none_or(is_own_queue)
            && self.session.is_none_or(|id| sessions.get(id).is_some_and(|session| is_of_lock(session.lock.hold_key())))
            && self.revocation.is_none_or(|id| revocations.get(id).is_some_and(|it| is_of_lock(it.hold_key())))
    }
}
