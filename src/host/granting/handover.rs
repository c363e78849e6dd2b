//! Grants a lock that has capacity: to the session that lost it, or else to the next waiter, in the same step.

use std::ffi::CStr;

use super::delivery;
use super::reviews;
use crate::core::{
    Cause, Grant, HoldKey, Kind, LATEST_SHARE_END, OrBug, QueueId, Session, SessionId, SessionLock, UnixMs, WaiterId,
};
use crate::host::background::suspension;
use crate::host::keys::compat_wake;
use crate::host::keys::effects;
use crate::host::keys::lock_handles::{LockHandles, share_hold_key};
use crate::host::keys::lock_key;
use crate::host::keys::share_key;
use crate::host::sessions::share_sessions;
use crate::host::settings;
use crate::host::state::{self, Key, MAX_BATCH, State};
use crate::host::waiting::messages::Subject;
use crate::server::{self, OwnedString, Stopwatch, StringRef, ValueType};

/// Grants a free lock to its sessions or to the next waiter, if there are either.
pub fn grant_free_lock(key: &mut Key<'_, '_>, now: UnixMs) {
    if let Some(handles) = LockHandles::of(key) {
        grant_free_lock_with(key, handles, now);
    }
}

/// Like [`grant_free_lock`], with handles that the caller has looked up.
pub fn grant_free_lock_with(key: &mut Key<'_, '_>, handles: LockHandles, now: UnixMs) {
    debug_assert!(key.is_empty(), "the lock is free");
    if let Some(session) = handles.session {
        debug_assert!(state::with(|state| state.sessions.is_current(session)), "handles name a current session");
        if state::with(|state| state.sessions.get(session).is_some_and(|session| session.has_expired(now))) {
            if !suspension::suspends_grant() {
                return_to_session(key, session, now);
            }
            return;
        }
        end_session(key); // An external command has removed the lock, and its event has not come yet.
    }
    if handles.has_share_sessions {
        share_sessions::return_to_sessions(key, now);
    }
    if let Some(queue) = handles.queue {
        let cause = state::with(|state| state.waiting.cause_of(queue));
        grant_waiters(key, queue, cause, now);
    }
}

/// Frees a lock that is held alone: grants it to the next waiter, or deletes the key.
#[inline(always)]
pub fn release(key: &mut Key<'_, '_>, handles: Option<LockHandles>, cause: Cause, now: UnixMs) {
    debug_assert!(!key.is_empty(), "a lock that is released is held");
    let granted = handles.is_some_and(|LockHandles { queue, session, .. }| {
        if session.is_some() {
            end_session(key);
        }
        queue.is_some_and(|queue| grant_next(key, queue, Capacity::All, cause, now))
    });
    if granted {
        return;
    }
    if settings::WAKE_FOREIGN.is_on() { compat_wake::free(key) } else { effects::free(key) }
}

/// Removes a share, and grants the capacity to the next waiters.
///
/// The caller has purged the expired members: removing the last share that has not expired deletes the key, and an expired
/// member may have an open session.
pub fn release_share(
    key: &mut Key<'_, '_>,
    token: StringRef<'_>,
    handles: Option<LockHandles>,
    cause: Cause,
    now: UnixMs,
) {
    debug_assert_eq!(key.value_type(), ValueType::SortedSet, "a shared lock is held");
    let (db, name) = (key.ctx().db(), key.name().bytes());
    effects::remove_share(key, token, now);
    let Some(handles) = handles else { return };
    let is_returning = state::with(|state| {
        state.sessions.end(share_hold_key(key, token.bytes()));
        let is_returning = state.sessions.is_returning(db, name);
        if key.is_empty() && state.grants_suspended_ms() == 0 && !is_returning {
            // External commands have removed the shares of the sessions that are left.
            state.sessions.end_shares(db, name);
        }
        is_returning
    });
    if key.is_empty() && is_returning {
        share_sessions::return_to_sessions(key, now);
    }
    if let Some(queue) = handles.queue {
        grant_waiters(key, queue, cause, now);
    }
}

/// Ends the session of a lock that is held alone, if it has one.
pub fn end_session(key: &Key<'_, '_>) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|state| state.sessions.end(HoldKey::whole(db, name)));
}

/// Grants the lock to the first waiters, as far as it has capacity now.
pub fn grant_waiters(key: &mut Key<'_, '_>, queue: QueueId, cause: Cause, now: UnixMs) {
    grant_next(key, queue, Capacity::FromKey, cause, now);
}

/// The capacity of a lock that is about to be granted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Capacity {
    /// The whole lock: its only holder releases it.
    All,
    /// What the key shows.
    FromKey,
}

/// The number of requests that are notified in one batch, after which no other queue entry is granted the lock. The copies of a
/// request share a queue entry, so a batch may notify more.
const MAX_NOTIFIED: usize = 1000;

/// The name of a hand-over in the latency monitor.
const LATENCY_EVENT: &CStr = c"lock-handover";

/// Grants the lock to the first waiters that can be notified, even if the key still names another holder, and replies to
/// their clients.
///
/// Returns `false`, and does not change the key, if there is no such waiter or grants are suspended. If the batch ends while
/// the lock has capacity for the next waiter, schedules another review, after those of other locks.
fn grant_next(key: &mut Key<'_, '_>, queue: QueueId, mut capacity: Capacity, cause: Cause, now: UnixMs) -> bool {
    if suspension::suspends_grant() {
        return false;
    }
    let (must_wait, batch) = state::with(|state| (state.waiting.has_used_batch(queue, state.run), state.batch));
    if must_wait {
        return false;
    }
    let may_publish = server::may_publish();
    if state::with(|state| state.pending.has_messages()) && !may_publish {
        reviews::soon(key, cause);
        return false;
    }
    let mut granted = Vec::new();
    let mut notified = 0_usize;
    let mut stopwatch = None;
    for tried in 0.. {
        if capacity == Capacity::FromKey && !reviews::has_capacity_for_first(key, queue, now) {
            break;
        }
        if granted.len() >= batch || tried >= MAX_BATCH || notified >= MAX_NOTIFIED {
            reviews::in_turn(queue, cause);
            break;
        }
        let Some(mut grant) = state::with(|state| state.waiting.grant_first(queue)) else {
            debug_assert!(capacity == Capacity::All, "capacity for the first waiter was found, so there is one");
            break;
        };
        debug_assert!(granted.last().is_none_or(|(last, ..): &(Grant, _, _)| last.turn < grant.turn), "turns rise");
        stopwatch.get_or_insert_with(Stopwatch::start);
        if delivery::announce(&mut grant, |grant| lease_end_of(grant, now)) {
            // The waiters that were dropped may have been the only ones with a lease.
            let lease_end = lease_end_of(&grant, now);
            write_grant(key, &grant, lease_end, cause, now);
            capacity = Capacity::FromKey;
            let withdrawn = withdraw_other_entries(&grant);
            notified = notified.saturating_add(grant.waiters.len()).saturating_add(withdrawn.len());
            granted.push((grant, lease_end, withdrawn));
        } else if let Some(until) = settings::kept_until(now) {
            state::with(|state| state.waiting.restore(grant, until));
        }
    }
    let is_granted = !granted.is_empty();
    state::with(|state| state.spend(notified));
    if is_granted {
        reviews::schedule(key, queue, now);
    }
    for (grant, lease_end, withdrawn) in granted {
        let Grant { db, key, claim, .. } = &grant;
        delivery::reply_withdrawn(withdrawn, Subject { db: *db, key, owner: &claim.owner });
        delivery::reply_granted(grant, lease_end, now);
    }
    if let Some(stopwatch) = stopwatch {
        stopwatch.stop(LATENCY_EVENT);
    }
    is_granted
}

/// Removes the queue entries that the owner of a grant has for other kinds of the lock. Returns the waiters of these entries.
fn withdraw_other_entries(grant: &Grant) -> Vec<WaiterId> {
    let Grant { db, key, claim, .. } = grant;
    let withdrawn = state::with(|state| state.waiting.withdraw_owner(*db, key, &claim.owner, Some(claim.kind)));
    withdrawn.unwrap_or_default()
}

/// Returns the end of the lease of a grant, or `None` if it has no lease.
fn lease_end_of(grant: &Grant, now: UnixMs) -> Option<UnixMs> {
    let latest = if grant.claim.kind == Kind::Shared { LATEST_SHARE_END } else { UnixMs::MAX };
    let lease = grant.lease(delivery::needs_lease(grant));
    let lease = lease.map(settings::cut).or_else(settings::longest_lease);
    lease.map(|lease| lease.end_from(now).min(latest))
}

fn write_grant(key: &mut Key<'_, '_>, grant: &Grant, lease_end: Option<UnixMs>, cause: Cause, now: UnixMs) {
    debug_assert!(grant.db == key.ctx().db() && *grant.key == *key.name().bytes(), "the grant is of this key");
    debug_assert!(!grant.waiters.is_empty(), "a queue entry in the order has waiters");
    debug_assert!(lease_end.is_none_or(|end| end > now || end == LATEST_SHARE_END), "the lease ends in the future");
    effects::grant(key, grant.claim.kind, OwnedString::new(&grant.claim.owner).as_ref(), lease_end);
    debug_assert!(is_held_by(key, &grant.claim.owner, now), "the owner of the grant was written");
    state::with(|state| {
        // The time since the wait began. The server's clock may have been set back.
        state.stats.record_handover(cause, now.saturating_sub(grant.since));
        // The session and the revocation of the previous grant are void, even if it was to the same owner.
        state.sessions.end(grant.hold_key());
        state.revocations.cancel(grant.hold_key());
    });
}

/// Returns whether the key names this holder.
fn is_held_by(key: &Key<'_, '_>, owner: &[u8], now: UnixMs) -> bool {
    let name = OwnedString::new(owner);
    if key.value_type() == ValueType::SortedSet {
        return share_key::end_of(key, name.as_ref()).is_some_and(|end| !end.has_expired(now));
    }
    lock_key::read_for(key, Some(name.as_ref()), now).is_ok_and(|lock| lock.held_by(owner).is_ok())
}

/// Returns the lock to its session. Its lease has ended although a connection is open.
fn return_to_session(key: &mut Key<'_, '_>, id: SessionId, now: UnixMs) {
    let found = state::with(|State { sessions, .. }| {
        sessions.fit_lease(id, settings::longest_lease());
        sessions.get(id).cloned()
    });
    let Some(session) = found.or_bug("a handle names a session that does not exist") else { return };
    let Session { lock: SessionLock { kind, owner, holds, lease, .. }, .. } = session;
    debug_assert!(holds >= 1 && kind != Kind::Shared, "the session of a lock that was held alone");
    let owner = OwnedString::new(&owner);
    let lease_end = Some(lease.end_from(now));
    match kind {
        Kind::Reentrant => effects::set_holds(key, owner.as_ref(), holds, lease_end),
        Kind::Mutex | Kind::Shared => effects::grant(key, kind, owner.as_ref(), lease_end),
    }
    reviews::schedule_renewal(key, id, lease_end, now);
}
