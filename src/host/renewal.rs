//! Renews the leases of sessions.

use super::effect;
use super::handover;
use super::lock_key;
use super::permission;
use super::state::{self, Context, Key, State};
use crate::core::{LeaseEnd, Lock, Session, SessionId, SessionTask, UnixMs};
use crate::server::{Mode, OwnedString, Slot};

/// The state of a session's lock.
enum SessionLockState {
    /// The session holds the lock, with this end of the lease.
    Held(Option<UnixMs>),
    /// The key is empty: the lease has ended although a connection is open, or the lock was taken away.
    Free,
    /// Somebody else holds the lock, or the key is not a lock.
    Lost,
}

/// Carries out a task of a session. A session that has lost its lock ends, and one whose lease has ended takes the lock
/// back.
pub fn carry_out(ctx: &mut Context<'_>, task: SessionTask, now: UnixMs) {
    let (SessionTask::Renew(id) | SessionTask::Check(id)) = task;
    let Some(session) = state::with(|State { sessions, .. }| {
        // A session whose connections are all closed is about to lose the lock.
        let is_open = sessions.clients(id).next().is_some();
        sessions.get(id).filter(|_| is_open).cloned()
    }) else {
        return;
    };
    ctx.select_db(session.lock.db);
    let name = OwnedString::new(&session.lock.key);
    let found = lock_state(&session, &ctx.open(name.as_ref(), Mode::Read));
    match found {
        SessionLockState::Held(lease_end) => {
            if task == SessionTask::Check(id) {
                return state::with(|state| state.sessions.lease_found(id, lease_end));
            }
            state::with(|state| state.sessions.set_lease_end(id, lease_end));
        }
        SessionLockState::Lost => return end(&session),
        SessionLockState::Free => {}
    }
    let slot = ctx.slot_of(name.as_ref());
    if slot == Slot::Elsewhere && !planted!(SessionOutlivesSlot) {
        return end(&session);
    }
    if slot != Slot::Ours || !permission::accepts_write_to(ctx, name.as_ref(), session.lock.kind) {
        planted!(RefusedRenewalIsOver => return);
        let later = session.lock.lease.renewal_retry_after(now);
        return state::with(|state| state.sessions.schedule_renewal_at(id, later));
    }
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    match lock_state(&session, &key) {
        SessionLockState::Held(lease_end) => renew(&mut key, id, &session, lease_end, now),
        SessionLockState::Free => handover::grant_free_lock(&mut key, now),
        SessionLockState::Lost => end(&session),
    }
}

fn end(session: &Session) {
    state::with(|state| state.sessions.end(session.lock.db, &session.lock.key));
}

fn lock_state(session: &Session, key: &Key<'_, '_>) -> SessionLockState {
    match lock_key::read(key) {
        Ok(Lock::Free) => SessionLockState::Free,
        Ok(Lock::Held(holder)) if session.matches(&holder) => SessionLockState::Held(holder.lease_end.get()),
        Ok(Lock::Held(holder)) if planted!(AnyHolderIsMine) => SessionLockState::Held(holder.lease_end.get()),
        _ => SessionLockState::Lost,
    }
}

/// Sets the lease to its full length again. A lease that somebody made longer, or removed, stays as it is.
fn renew(key: &mut Key<'_, '_>, id: SessionId, session: &Session, lease_end: Option<UnixMs>, now: UnixMs) {
    let renewed = session.lock.lease.end_from(now);
    planted!(RenewalIsShort => return {
        effect::set_lease(key, now.saturating_add(renewed.saturating_sub(now).div_euclid(2)));
        handover::schedule_renewal(key, id, key.expiry(), now);
    });
    if lease_end.is_some_and(|end| end < renewed || planted!(RenewalCutsShort)) {
        effect::set_lease(key, renewed);
    }
    handover::schedule_renewal(key, id, key.expiry(), now);
}
