//! Processes the overdue work of a lock, before a request for it is executed.

use super::hand_on::{Capacity, hand_on};
use super::{handover, revocation, share_sessions};
use crate::core::{HoldId, Lock, OrBug, UnixMs};
use crate::host::keys::{lock_handles::LockHandles, lock_key};
use crate::host::state::{Key, Step};
use crate::server::{StringRef, ValueType};

/// Processes the overdue work of a lock and of the share of `caller`, and returns the lock's handles afterwards. Revokes the lock
/// of a disconnected holder, and grants a free lock to its session or to the next waiter. So no request overtakes a waiter, and
/// no reply confirms a lock that is about to be revoked.
#[inline(always)]
pub fn process_overdue(key: &mut Key<'_, '_>, caller: Option<StringRef<'_>>, step: &mut Step) -> Option<LockHandles> {
    if key.with_state(|state| state.is_idle()) {
        return None;
    }
    if let Some(caller) = caller {
        revocation::carry_out_for_share(key, caller, step);
        share_sessions::return_early(key, caller, step.now);
    }
    let handles = LockHandles::of(key)?;
    process_handles(key, handles, step)
}

fn process_handles(key: &mut Key<'_, '_>, mut handles: LockHandles, step: &mut Step) -> Option<LockHandles> {
    debug_assert!(handles.session.is_none() || !handles.has_share_sessions, "a lock has sessions of two kinds");
    if let Some(revocation) = handles.revocation {
        revocation::carry_out_on(key, revocation, step);
        handles = LockHandles::of(key)?;
    }
    if key.is_empty() {
        handover::grant_free_lock_with(key, handles, step);
    } else if let Some(session) = handles.session.filter(|session| !is_of_session(key, *session, step.now)) {
        key.with_state(|state| state.locks.end_session_of(session));
    } else if key.value_type() == ValueType::SortedSet {
        share_sessions::end_removed(key, step);
        share_sessions::purge_expired(key, step);
        if key.is_empty() {
            handover::grant_free_lock(key, step);
        } else if let Some(queue) = handles.queue {
            let cause = key.with_state(|state| state.locks.cause_of(queue));
            hand_on(key, queue, Capacity::FromKey, cause, step);
        }
    } else if handles.has_share_sessions {
        share_sessions::end_sessions(key); // An external write has replaced the lock.
    } else {
        return Some(handles);
    }
    LockHandles::of(key)
}

/// Returns whether a key, which is not empty, still holds the lock of this session. An external write may have replaced it.
fn is_of_session(key: &Key<'_, '_>, id: HoldId, now: UnixMs) -> bool {
    let lock = lock_key::read(key, None, now);
    key.with_state(|state| {
        let hold = state.locks.hold(id).or_bug("a handle names a session that does not exist");
        hold.is_some_and(|hold| matches!(&lock, Ok(Lock::Held(holder)) if hold.matches(holder)))
    })
}
