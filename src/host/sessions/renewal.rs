//! Renews the leases of sessions.

use super::share_sessions;
use crate::core::{Budget, Kind, LeaseEnd, Lock, Session, SessionId, SessionTask, UnixMs};
use crate::host::background::{suspension, write_permission};
use crate::host::granting::{handover, reviews};
use crate::host::keys::share_key::{self, ShareEnd};
use crate::host::keys::{effects, lock_key};
use crate::host::settings;
use crate::host::state::{self, Context, Key, State};
use crate::server::{Mode, OwnedString, Server, Slot, ValueType};

/// What a session's lock was found to be.
enum SessionLockState {
    /// The session holds the lock, with this end of the lease.
    Held(Option<UnixMs>),
    /// The key is empty: the lease has ended although a connection is open, or an external command has removed the lock.
    Free,
    /// The share has expired, and its member is still in the Sorted Set.
    Expired,
    /// The shares of the lock are being returned to their sessions, and this share may be the next.
    Returning,
    /// Another holder has the lock, or the key is not a lock.
    Lost,
}

/// Carries out a task of a session. A session that has lost its lock ends. If its lease has ended, the lock is returned to
/// it.
pub fn carry_out(ctx: &mut Context<'_>, task: SessionTask, now: UnixMs, budget: &mut Budget) {
    let (SessionTask::Renew(id) | SessionTask::Check(id)) = task;
    let Some(session) = ctx.with_state(|State { sessions, .. }| {
        // The session may have ended since the task was taken: the revocation before it may have released its lock.
        // Without an open connection, its lock is about to be revoked.
        let is_open = sessions.is_current(id) && sessions.clients(id).next().is_some();
        sessions.fit_lease(id, settings::longest_lease());
        sessions.get(id).filter(|_| is_open).cloned()
    }) else {
        return;
    };
    debug_assert!(session.lock.holds >= 1, "a session has a hold");
    ctx.select_db(session.lock.db);
    let name = OwnedString::new(&session.lock.key);
    let found = lock_state(&session, &ctx.open(name.as_ref(), Mode::Read), now);
    match found {
        SessionLockState::Held(lease_end) => {
            if task == SessionTask::Check(id) {
                return ctx.with_state(|state| state.sessions.lease_found(id, lease_end));
            }
            ctx.with_state(|state| state.sessions.set_lease_end(id, lease_end));
        }
        SessionLockState::Lost => return end(ctx.server(), &session),
        SessionLockState::Returning if budget.had_batch() => {
            // Its share is renewed when it is returned, after the work of other locks.
            return ctx.with_state(|state| state.sessions.return_in_turn(session.lock.db, &session.lock.key));
        }
        SessionLockState::Free | SessionLockState::Expired | SessionLockState::Returning => {}
    }
    let slot = write_permission::slot_of(ctx, name.as_ref());
    if slot == Slot::Elsewhere {
        return end(ctx.server(), &session);
    }
    let is_held = matches!(found, SessionLockState::Held(_));
    let must_wait = if is_held {
        suspension::check_lease_change(ctx.server()).is_err()
    } else {
        suspension::suspends_grants(ctx.server())
    };
    if slot != Slot::Ours || must_wait || !write_permission::accepts_write_to(ctx, name.as_ref(), session.lock.kind) {
        return postpone(ctx.server(), id, &session, &found, now);
    }
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    if key.is_in_use() {
        return postpone(key.server(), id, &session, &found, now);
    }
    match lock_state(&session, &key, now) {
        SessionLockState::Held(lease_end) => renew(&mut key, id, &session, lease_end, now, budget),
        SessionLockState::Free => handover::grant_free_lock(&mut key, now, budget),
        SessionLockState::Expired => share_sessions::purge_expired(&mut key, now, budget),
        SessionLockState::Returning => share_sessions::return_next(&mut key, now, budget),
        SessionLockState::Lost => end(key.server(), &session),
    }
}

/// Schedules a task again that cannot be carried out now. While shares are being returned and writes are refused, it continues as
/// soon as the server accepts a write.
fn postpone(server: &Server, id: SessionId, session: &Session, found: &SessionLockState, now: UnixMs) {
    let is_returning = matches!(found, SessionLockState::Returning);
    state::with(server, |state| {
        if is_returning && state.refused.is_refused() {
            state.sessions.return_in_turn(session.lock.db, &session.lock.key);
        } else {
            let retry_at = session.lock.lease.renewal_retry_after(now);
            debug_assert!(retry_at > now, "a task that is postponed is not due");
            state.sessions.schedule_renewal_at(id, retry_at);
        }
    });
}

fn end(server: &Server, session: &Session) {
    state::with(server, |state| state.sessions.end(session.lock.hold_key()));
}

fn lock_state(session: &Session, key: &Key<'_, '_>, now: UnixMs) -> SessionLockState {
    if key.value_type() == ValueType::SortedSet
        && key.with_state(|state| state.sessions.is_to_return(session.lock.hold_key()))
    {
        return SessionLockState::Returning;
    }
    let owner = OwnedString::new(&session.lock.owner);
    let Ok(lock) = lock_key::read_for(key, Some(owner.as_ref()), now) else { return SessionLockState::Lost };
    match (lock.held_by(&session.lock.owner), &lock) {
        (_, Lock::Free) => SessionLockState::Free,
        (Ok(holder), _) if session.matches(holder) => SessionLockState::Held(holder.lease_end.get()),
        (_, Lock::Shared(_)) if is_of_share(session, key) => SessionLockState::Expired,
        _ => SessionLockState::Lost,
    }
}

/// Returns whether the share of a session still has a member, expired or not.
fn is_of_share(session: &Session, key: &Key<'_, '_>) -> bool {
    let owner = OwnedString::new(&session.lock.owner);
    session.lock.kind == Kind::Shared && share_key::end_of(key, owner.as_ref()).is_some()
}

/// Sets the lease to its full length again. Does not shorten a lease that an external command has made longer or removed.
fn renew(
    key: &mut Key<'_, '_>,
    id: SessionId,
    session: &Session,
    lease_end: Option<UnixMs>,
    now: UnixMs,
    budget: &mut Budget,
) {
    let is_share = session.lock.kind == Kind::Shared;
    let (lease, owner) = (session.lock.lease, OwnedString::new(&session.lock.owner));
    let renewed = if is_share { lease.share_end_from(now) } else { lease.end_from(now) };
    let mut lease_end = lease_end;
    if is_share {
        share_sessions::purge_expired(key, now, budget);
        // External commands may have set the key's expiry time, so that the share ends later than its key.
        lease_end = share_key::end_of(key, owner.as_ref()).map_or(lease_end, ShareEnd::time);
    }
    debug_assert!(!key.is_empty(), "a lock that is renewed is held");
    let is_shorter = lease_end.is_some_and(|end| end < renewed);
    if is_share {
        effects::renew_share(key, owner.as_ref(), is_shorter.then_some(renewed));
    } else if is_shorter {
        effects::set_lease(key, renewed);
    }
    reviews::schedule_renewal(key, id, if is_shorter { Some(renewed) } else { lease_end }, now);
}
