//! Handles to the queue, the sessions and the revocation of one lock.

use crate::core::{HoldId, HoldKey, Kind, RecordId};
use crate::host::state::{Key, State, with_record};
use crate::server::ValueType;

/// The queue, the session and the revocation of a lock, as far as there are any.
#[derive(Clone, Copy)]
pub struct LockHandles {
    pub record: RecordId,
    pub queue: Option<RecordId>,
    /// The session of a lock that is held alone.
    pub session: Option<HoldId>,
    /// The revocation of a lock that is held alone.
    pub revocation: Option<HoldId>,
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
        with_record(key, |State { locks, .. }, record| {
            // A revocation may be all that was kept for a session whose connection has closed.
            let revocation = locks.revocation_of(record, None);
            let queue = locks.has_queue(record).then_some(record);
            let (session, has_share_sessions) = (locks.session_of(record, None), locks.has_shares(record));
            let has_share_revocations = locks.revoked_shares(record).next().is_some();
            let is_held_by_shares = has_share_sessions || has_share_revocations;
            let has_any = queue.is_some() || session.is_some() || revocation.is_some() || is_held_by_shares;
            has_any.then_some(Self { record, queue, session, revocation, has_share_sessions, has_share_revocations })
        })
    }
}
