//! Grants a free lock: to the session that lost it, or else to the first in line, in the same step.

use super::effect;
use super::grants;
use super::lock_handles::LockHandles;
use super::state::{self, Key};
use crate::core::{Cause, Kind, QueueId, SessionId, SessionLock, UnixMs};
use crate::server::OwnedString;

/// Grants a lock that is free to its session or to the first in line, if there is either.
pub fn grant_free_lock(key: &mut Key<'_, '_>, now: UnixMs) {
    if let Some(handles) = LockHandles::of(key) {
        grant_free_lock_with(key, handles, now);
    }
}

/// Like [`grant_free_lock`], with handles that were looked up before.
pub fn grant_free_lock_with(key: &mut Key<'_, '_>, handles: LockHandles, now: UnixMs) {
    if let Some(session) = handles.session {
        planted!(WaiterBeforeSession => end_session(key));
        if state::with(|state| state.sessions.get(session).is_some_and(|session| session.has_lapsed(now))) {
            return return_to_session(key, session, now);
        }
        end_session(key); // The lock was taken away, and no event has told of it yet.
    }
    if let Some(queue) = handles.queue {
        let cause = state::with(|state| state.waiting.cause_of(queue));
        grant_to_first_waiter(key, queue, cause, now);
    }
}

/// Frees a lock that is held: grants it to the first in line, or deletes the key.
#[inline(always)]
pub fn release(key: &mut Key<'_, '_>, handles: Option<LockHandles>, cause: Cause, now: UnixMs) {
    let granted = handles.is_some_and(|LockHandles { queue, session, .. }| {
        if session.is_some() && !planted!(ReleaseKeepsSession) {
            end_session(key);
        }
        queue.is_some_and(|queue| !planted!(NobodyIsNext) && grant_to_first_waiter(key, queue, cause, now))
    });
    if !granted {
        effect::free(key);
    }
}

/// Ends the session of a lock, if it has one.
pub fn end_session(key: &Key<'_, '_>) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|state| state.sessions.end(db, name));
}

/// Grants the lock to the first in line, even if the key still names another holder, and answers its clients.
///
/// Returns `false`, without any effect, if nobody is in line.
fn grant_to_first_waiter(key: &mut Key<'_, '_>, queue: QueueId, cause: Cause, now: UnixMs) -> bool {
    let Some(grant) = state::with(|state| state.waiting.grant_first(queue)) else { return false };
    let now = if planted!(LeaseFromTheAsking) { grant.since } else { now };
    let lease_end = grant.lease(grants::asks_for_session(&grant)).map(|lease| lease.end_from(now));
    planted!(AnswerBeforeWrite => grants::reply_granted(grant.clone(), lease_end, now));
    effect::grant(key, grant.claim.kind, OwnedString::new(&grant.claim.owner).as_ref(), lease_end);
    state::with(|state| {
        state.stats.record_handover(cause, now.saturating_sub(grant.since));
        state.waiting.review_at_lease_end(queue, lease_end);
        // What is left of the previous grant is void, even if it was to the same token.
        state.sessions.end(grant.db, &grant.key);
        state.revocations.cancel(grant.db, &grant.key);
    });
    grants::reply_granted(grant, lease_end, now);
    true
}

/// Grants the lock to its session again, whose lease has ended although a connection is open.
fn return_to_session(key: &mut Key<'_, '_>, id: SessionId, now: UnixMs) {
    let Some(session) = state::with(|state| state.sessions.get(id).cloned()) else { return };
    let SessionLock { kind, owner, holds, lease, .. } = session.lock;
    let owner = OwnedString::new(&owner);
    let lease_end = Some(lease.end_from(now));
    let holds = if planted!(OneHoldComesBack) { 1 } else { holds };
    match kind {
        Kind::Mutex => effect::grant(key, kind, owner.as_ref(), lease_end),
        Kind::Reentrant => effect::set_holds(key, owner.as_ref(), holds, lease_end),
    }
    schedule_renewal(key, id, lease_end, now);
}

/// Records the new end of a session's lease, and schedules the next renewal and, if clients wait, a review.
pub fn schedule_renewal(key: &Key<'_, '_>, id: SessionId, lease_end: Option<UnixMs>, now: UnixMs) {
    let queue = LockHandles::of(key).and_then(|handles| handles.queue);
    state::with(|state| {
        state.sessions.schedule_renewal(id, now);
        state.sessions.set_lease_end(id, lease_end);
        if let Some(queue) = queue {
            state.waiting.review_at_lease_end(queue, lease_end);
        }
    });
}
