//! Grants a lock that has capacity: to the session that lost it, or else to the next waiter, in the same step.

use super::hand_on::{Capacity, hand_on};
use super::{reviews, share_sessions};
use crate::core::{Cause, HoldKey, Kind, OrBug, Session, SessionId, SessionLock, UnixMs};
use crate::host::keys::lock_handles::{LockHandles, share_hold_key};
use crate::host::keys::{compat_wake, effects};
use crate::host::state::{Key, State, Step, with_lock};
use crate::host::{conditions::suspension, settings};
use crate::server::{OwnedString, StringRef, ValueType};

/// Grants a free lock to its sessions or to the next waiter, if there are either.
pub fn grant_free_lock(key: &mut Key<'_, '_>, step: &mut Step) {
    if let Some(handles) = LockHandles::of(key) {
        grant_free_lock_with(key, handles, step);
    }
}

/// Like [`grant_free_lock`], with the handles of the lock.
pub fn grant_free_lock_with(key: &mut Key<'_, '_>, handles: LockHandles, step: &mut Step) {
    debug_assert!(key.is_empty(), "the lock is free");
    if let Some(session) = handles.session {
        debug_assert!(key.with_state(|state| state.sessions.is_current(session)), "handles name a current session");
        if key.with_state(|state| state.sessions.get(session).is_some_and(|session| session.has_expired(step.now))) {
            if !suspension::suspends_grants(key.server()) {
                return_to_session(key, session, step.now);
            }
            return;
        }
        end_session(key); // An external command has removed the lock, and its event has not come yet.
    }
    if handles.has_share_sessions {
        share_sessions::return_to_sessions(key, step);
    }
    if handles.has_share_revocations {
        share_sessions::return_revoked(key, step);
    }
    if let Some(queue) = handles.queue {
        let cause = key.with_state(|state| state.waiting.cause_of(queue));
        hand_on(key, queue, Capacity::FromKey, cause, step);
    }
}

/// Frees a lock that is held alone: grants it to the next waiter, or deletes the key.
#[inline(always)]
pub fn release(key: &mut Key<'_, '_>, handles: Option<LockHandles>, cause: Cause, step: &mut Step) {
    debug_assert!(!key.is_empty(), "a lock that is released is held");
    let granted = handles.is_some_and(|LockHandles { queue, session, .. }| {
        if session.is_some() {
            end_session(key);
        }
        queue.is_some_and(|queue| hand_on(key, queue, Capacity::All, cause, step))
    });
    if granted {
        return;
    }
    if settings::WAKE_FOREIGN.is_on() { compat_wake::free(key) } else { effects::free(key) }
}

/// Removes a share, and grants the capacity to the next waiters. The caller has purged the expired members: removing the last
/// share that has not expired deletes the key, and an expired member may have an open session.
pub fn release_share(
    key: &mut Key<'_, '_>,
    token: StringRef<'_>,
    handles: Option<LockHandles>,
    cause: Cause,
    step: &mut Step,
) {
    debug_assert_eq!(key.value_type(), ValueType::SortedSet, "a shared lock is held");
    effects::remove_share(key, token, step.now);
    let Some(handles) = handles else { return };
    let is_returning = with_lock(key, |state, db, name| {
        state.sessions.end(share_hold_key(key, token.bytes()));
        let is_returning = state.sessions.is_returning(db, name);
        if key.is_empty() && state.grants_suspended_ms() == 0 && !is_returning {
            // External commands have removed the shares of the sessions that are left.
            state.sessions.end_shares(db, name);
        }
        is_returning
    });
    if key.is_empty() && is_returning {
        share_sessions::return_to_sessions(key, step);
    }
    if let Some(queue) = handles.queue {
        hand_on(key, queue, Capacity::FromKey, cause, step);
    }
}

/// Ends the session of a lock that is held alone, if it has one.
pub fn end_session(key: &Key<'_, '_>) {
    with_lock(key, |state, db, name| state.sessions.end(HoldKey::whole(db, name)));
}

/// Returns the lock to its session. Its lease has ended although a connection is open.
fn return_to_session(key: &mut Key<'_, '_>, id: SessionId, now: UnixMs) {
    let found = key.with_state(|State { sessions, .. }| {
        sessions.fit_lease(id, settings::longest_lease());
        sessions.get(id).cloned()
    });
    let Some(session) = found.or_bug("a handle names a session that does not exist") else { return };
    let Session { lock: SessionLock { kind, owner, holds, lease, .. }, .. } = session;
    debug_assert!(holds >= 1 && kind != Kind::Shared, "the session of a lock that was held alone");
    let owner = OwnedString::new(&owner);
    let lease_end = Some(lease.end_from(now));
    effects::grant_again(key, kind, owner.as_ref(), holds, lease_end);
    reviews::schedule_renewal(key, id, lease_end, now);
}
