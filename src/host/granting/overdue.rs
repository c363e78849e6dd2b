//! Processes the overdue work of a lock, before a request for it is executed.

use super::hand_on::{Capacity, hand_on};
use super::{handover, revocation, share_sessions};
use crate::core::{Form, Handles, HoldId, Lock, OrBug, Overdue, UnixMs, overdue};
use crate::host::keys::{lock_handles::handles_of, lock_key};
use crate::host::state::{Key, Step};
use crate::server::{StringRef, ValueType};

/// Processes the overdue work of a lock and of the share of `caller`, and returns the lock's handles afterwards.
#[inline(always)]
pub fn process_overdue(key: &mut Key<'_, '_>, caller: Option<StringRef<'_>>, step: &mut Step) -> Option<Handles> {
    if key.with_state(|state| state.is_idle()) {
        return None;
    }
    if let Some(caller) = caller {
        revocation::carry_out_for_share(key, caller, step);
        share_sessions::return_early(key, caller, step.now);
    }
    let handles = handles_of(key)?;
    process(key, handles, step)
}

fn process(key: &mut Key<'_, '_>, mut handles: Handles, step: &mut Step) -> Option<Handles> {
    loop {
        match overdue(&handles, form_of(key), |session| is_held_by(key, session, step.now)) {
            Some(Overdue::Revoke(hold)) => {
                revocation::carry_out_on(key, hold, step);
                // While grants are suspended, the revocation stays.
                handles = Handles { revocation: None, ..handles_of(key)? };
                continue;
            }
            Some(Overdue::Grant) => handover::grant_free_lock_with(key, handles, step),
            Some(Overdue::EndSession(hold)) => key.with_state(|state| state.locks.end_session_of(hold)),
            Some(Overdue::EndShareSessions) => share_sessions::end_sessions(key),
            Some(Overdue::ReviewShares) => review_shares(key, handles, step),
            None => return Some(handles),
        }
        return handles_of(key);
    }
}

fn review_shares(key: &mut Key<'_, '_>, handles: Handles, step: &mut Step) {
    share_sessions::end_removed(key, step);
    share_sessions::purge_expired(key, step);
    if key.is_empty() {
        handover::grant_free_lock(key, step);
    } else if let Some(queue) = handles.queue {
        let cause = key.with_state(|state| state.locks.cause_of(queue));
        hand_on(key, queue, Capacity::FromKey, cause, step);
    }
}

fn form_of(key: &Key<'_, '_>) -> Form {
    match key.value_type() {
        _ if key.is_empty() => Form::Free,
        ValueType::SortedSet => Form::Shared,
        _ => Form::Alone,
    }
}

/// Returns whether a key, which is not empty, still holds the lock of this session. An external write may have replaced it.
fn is_held_by(key: &Key<'_, '_>, id: HoldId, now: UnixMs) -> bool {
    let lock = lock_key::read(key, None, now);
    key.with_state(|state| {
        let hold = state.locks.hold(id).or_bug("a handle names a session that does not exist");
        hold.is_some_and(|hold| matches!(&lock, Ok(Lock::Held(holder)) if hold.matches(holder)))
    })
}
