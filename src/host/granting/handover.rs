//! Grants a lock that has capacity: to the session that lost it, or else to the next waiter, in the same step.

use super::hand_on::{Capacity, hand_on};
use super::{reviews, share_sessions};
use crate::core::{Cause, Handles, HoldId, Kind, OrBug, UnixMs};
use crate::host::keys::lock_handles::handles_of;
use crate::host::keys::{compat_wake, effects};
use crate::host::state::{Key, State, Step};
use crate::host::{conditions::suspension, settings};
use crate::server::{OwnedString, StringRef, ValueType};

/// Grants a free lock to its sessions or to the next waiter, if there are either.
pub fn grant_free_lock(key: &mut Key<'_, '_>, step: &mut Step) {
    if let Some(handles) = handles_of(key) {
        grant_free_lock_with(key, handles, step);
    }
}

/// Like [`grant_free_lock`], with the handles of the lock.
pub fn grant_free_lock_with(key: &mut Key<'_, '_>, handles: Handles, step: &mut Step) {
    debug_assert!(key.is_empty(), "the lock is free");
    if let Some(session) = handles.session {
        debug_assert!(key.with_state(|state| state.locks.is_current(session)), "handles name a current session");
        if key.with_state(|state| state.locks.session(session).is_some_and(|session| session.has_expired(step.now))) {
            if !suspension::suspends_grants(key.server()) {
                return_to_session(key, session, step.now);
            }
            return;
        }
        key.with_state(|state| state.locks.end_session_of(session)); // An external command has removed the lock, and its event has not come yet.
    }
    if handles.has_share_sessions {
        share_sessions::return_to_sessions(key, step);
    }
    if handles.has_share_revocations {
        share_sessions::return_revoked(key, step);
    }
    if let Some(queue) = handles.queue {
        let cause = key.with_state(|state| state.locks.cause_of(queue));
        hand_on(key, queue, Capacity::FromKey, cause, step);
    }
}

/// Frees a lock that is held alone: grants it to the next waiter, or deletes the key.
#[inline(always)]
pub fn release(key: &mut Key<'_, '_>, handles: Option<Handles>, cause: Cause, step: &mut Step) {
    debug_assert!(!key.is_empty(), "a lock that is released is held");
    let granted = handles.is_some_and(|Handles { queue, session, .. }| {
        if let Some(session) = session {
            key.with_state(|state| state.locks.end_session_of(session));
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
    handles: Option<Handles>,
    cause: Cause,
    step: &mut Step,
) {
    debug_assert_eq!(key.value_type(), ValueType::SortedSet, "a shared lock is held");
    effects::remove_share(key, token, step.now);
    let Some(handles) = handles else { return };
    let suspends_grants = suspension::suspends_grants(key.server());
    let is_returning = key.with_state(|state| {
        let record = handles.record;
        if let Some(session) = state.locks.session_of(record, Some(token.bytes())) {
            state.locks.end_session_of(session);
        }
        let is_returning = state.locks.is_returning(record);
        if key.is_empty() && !suspends_grants && !is_returning {
            // External commands have removed the shares of the sessions that are left.
            state.locks.end_shares(record);
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

/// Returns the lock to its session. Its lease has ended although a connection is open.
fn return_to_session(key: &mut Key<'_, '_>, id: HoldId, now: UnixMs) {
    let found = key.with_state(|State { locks, .. }| {
        locks.fit_lease(id, settings::longest_lease());
        let (hold, session) = (locks.hold(id)?, locks.session(id)?);
        Some((hold.kind, OwnedString::new(&hold.owner), session.holds, session.lease))
    });
    let found = found.or_bug("a handle names a session that does not exist");
    let Some((kind, owner, holds, lease)) = found else { return };
    debug_assert!(holds >= 1 && kind != Kind::Shared, "the session of a lock that was held alone");
    let lease_end = Some(lease.end_from(now));
    effects::grant_again(key, kind, owner.as_ref(), holds, lease_end);
    reviews::schedule_renewal(key, id, lease_end, now);
}
