//! What the module keeps for one lock, as handles.

use super::Locks;
use super::record::{HoldId, RecordId};

/// The queue, the session and the revocation of a lock, as far as there are any.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
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

impl Locks {
    /// Returns the handles of a lock, or `None` if there are none.
    pub fn handles_of(&mut self, record: RecordId) -> Option<Handles> {
        // A revocation may be all that was kept for a session whose connection has closed.
        let revocation = self.revocation_of(record, None);
        let queue = self.has_queue(record).then_some(record);
        let (session, has_share_sessions) = (self.session_of(record, None), self.has_shares(record));
        let has_share_revocations = self.revoked_shares(record).next().is_some();
        let is_held_by_shares = has_share_sessions || has_share_revocations;
        let has_any = queue.is_some() || session.is_some() || revocation.is_some() || is_held_by_shares;
        has_any.then_some(Handles { record, queue, session, revocation, has_share_sessions, has_share_revocations })
    }
}
