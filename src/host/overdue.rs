//! Processes what is overdue for a lock, before a request for it is executed.

use super::handover;
use super::lock_handles::LockHandles;
use super::lock_key;
use super::revocation;
use super::state::{self, Key};
use crate::core::{Lock, SessionId, UnixMs};

/// Processes what is overdue for a lock, and returns its handles afterwards.
///
/// A holder that is gone loses the lock, and a free lock is granted to its session or to the first in line. So nobody
/// overtakes, and nobody is told that it holds a lock that is about to be revoked.
#[inline(always)]
pub fn process_overdue(key: &mut Key<'_, '_>, now: UnixMs) -> Option<LockHandles> {
    let handles = LockHandles::of(key)?;
    process_known(key, handles, now)
}

fn process_known(key: &mut Key<'_, '_>, mut handles: LockHandles, now: UnixMs) -> Option<LockHandles> {
    if let Some(revocation) = handles.revocation.filter(|_| !planted!(RevocationWaits)) {
        revocation::carry_out_on(key, revocation, now);
        handles = LockHandles::of(key)?;
    }
    planted!(Overtaking => return Some(handles));
    if key.is_empty() || planted!(LastMillisecond) && key.expiry() == Some(now) {
        handover::grant_free_lock_with(key, handles, now);
        return LockHandles::of(key);
    }
    if handles.session.is_some_and(|session| !is_of_session(key, session)) {
        handover::end_session(key);
        return LockHandles::of(key);
    }
    Some(handles)
}

/// Returns whether a key, which is not empty, still holds the lock of this session. Somebody may have overwritten it.
fn is_of_session(key: &Key<'_, '_>, id: SessionId) -> bool {
    let lock = lock_key::read(key);
    state::with(|state| {
        let session = state.sessions.get(id);
        session.is_some_and(|session| matches!(&lock, Ok(Lock::Held(holder)) if session.matches(holder)))
    })
}
