//! Renews the leases of sessions.

use super::{handover, reviews, share_sessions};
use crate::core::{Kind, LeaseEnd, Lock, Session, SessionId, SessionTask, UnixMs};
use crate::host::conditions::suspension;
use crate::host::conditions::write_permission::{self, Intent, Obstacle};
use crate::host::keys::share_key::{self, ShareEnd};
use crate::host::keys::{effects, lock_key};
use crate::host::settings;
use crate::host::state::{self, Context, Key, State, Step};
use crate::server::{OwnedString, Server, ValueType};

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

/// Carries out a task of a session. A session that has lost its lock ends. If its lease has ended, the lock is returned to it.
pub fn carry_out(ctx: &mut Context<'_>, task: SessionTask, step: &mut Step) {
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
    ctx.select_db(session.lock.db);
    let name = OwnedString::new(&session.lock.key);
    let obstacle = match write_permission::prepare(ctx, name.as_ref(), |key| intent_of(key, task, id, &session, step)) {
        Ok(mut key) => {
            return match lock_state(&session, &key, step.now) {
                SessionLockState::Held(lease_end) => renew(&mut key, id, &session, lease_end, step),
                SessionLockState::Free => handover::grant_free_lock(&mut key, step),
                SessionLockState::Expired => share_sessions::purge_expired(&mut key, step),
                SessionLockState::Returning => share_sessions::return_next(&mut key, step),
                SessionLockState::Lost => end(key.server(), &session),
            };
        }
        Err(obstacle) => obstacle,
    };
    match obstacle {
        Obstacle::Nothing => {}
        Obstacle::Elsewhere => end(ctx.server(), &session),
        Obstacle::Later => postpone(ctx.server(), id, &session, step.now),
    }
}

/// Returns what the task of a session writes to its key.
fn intent_of(key: &Key<'_, '_>, task: SessionTask, id: SessionId, session: &Session, step: &Step) -> Intent {
    let must_wait = match lock_state(session, key, step.now) {
        SessionLockState::Held(lease_end) if task == SessionTask::Check(id) => {
            key.with_state(|state| state.sessions.lease_found(id, lease_end));
            return Intent::Nothing;
        }
        SessionLockState::Held(lease_end) => {
            key.with_state(|state| state.sessions.set_lease_end(id, lease_end));
            suspension::check_lease_change(key.server()).is_err()
        }
        SessionLockState::Lost => {
            end(key.server(), session);
            return Intent::Nothing;
        }
        SessionLockState::Returning if step.budget.had_batch() => {
            // Its share is renewed when it is returned, after the work of other locks.
            key.with_state(|state| state.sessions.return_in_turn(session.lock.db, &session.lock.key));
            return Intent::Nothing;
        }
        SessionLockState::Free | SessionLockState::Expired | SessionLockState::Returning => {
            suspension::suspends_grants(key.server())
        }
    };
    if must_wait { Intent::Later } else { Intent::Write(session.lock.kind) }
}

/// Schedules a task again that cannot be carried out now. While shares are being returned and writes are refused, it continues as
/// soon as the server accepts a write.
fn postpone(server: &Server, id: SessionId, session: &Session, now: UnixMs) {
    state::with(server, |state| {
        if state.refused.is_refused() && state.sessions.is_to_return(session.lock.hold_key()) {
            state.sessions.return_in_turn(session.lock.db, &session.lock.key);
        } else {
            state.sessions.schedule_renewal_at(id, session.lock.lease.renewal_retry_after(now));
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
    let Ok(lock) = lock_key::read(key, Some(owner.as_ref()), now) else { return SessionLockState::Lost };
    match (lock.held_by(&session.lock.owner), &lock) {
        (_, Lock::Free) => SessionLockState::Free,
        (Ok(holder), _) if session.matches(holder) => SessionLockState::Held(holder.lease_end.get()),
        (_, Lock::Shared(_)) if session.lock.kind == Kind::Shared => match share_key::end_of(key, owner.as_ref()) {
            Some(_) => SessionLockState::Expired,
            None => SessionLockState::Lost,
        },
        _ => SessionLockState::Lost,
    }
}

/// Sets the lease to its full length again. Does not shorten a lease that an external command has made longer or removed.
fn renew(key: &mut Key<'_, '_>, id: SessionId, session: &Session, mut lease_end: Option<UnixMs>, step: &mut Step) {
    let is_share = session.lock.kind == Kind::Shared;
    let (lease, owner) = (session.lock.lease, OwnedString::new(&session.lock.owner));
    let renewed = if is_share { lease.share_end_from(step.now) } else { lease.end_from(step.now) };
    if is_share {
        share_sessions::purge_expired(key, step);
        // External commands may have set the key's expiry time, so that the share ends later than its key.
        lease_end = share_key::end_of(key, owner.as_ref()).map_or(lease_end, ShareEnd::time);
    }
    let is_shorter = lease_end.is_some_and(|end| end < renewed);
    match (is_share, is_shorter) {
        (true, true) => effects::set_share(key, owner.as_ref(), Some(renewed)),
        (true, false) => effects::fit_expiry_to_last_share(key),
        (false, true) => effects::set_lease(key, renewed),
        (false, false) => {}
    }
    reviews::schedule_renewal(key, id, if is_shorter { Some(renewed) } else { lease_end }, step.now);
}
