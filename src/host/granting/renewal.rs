//! Renews the leases of sessions.

use super::{handover, reviews, share_sessions};
use crate::core::{Hold, HoldId, Kind, Lease, LeaseEnd, Lock, UnixMs};
use crate::host::conditions::suspension;
use crate::host::conditions::write_permission::{self, Intent, Obstacle};
use crate::host::keys::share_key::{self, ShareEnd};
use crate::host::keys::{effects, lock_key};
use crate::host::settings;
use crate::host::state::{Context, Key, State, Step};
use crate::server::OwnedString;

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

/// A task of a session, whose connection is open.
struct Renewal {
    id: HoldId,
    /// Whether the lock is only checked.
    is_check: bool,
    hold: Hold,
    lease: Lease,
}

/// Renews the lease of a session, or checks whether its lock is still held. A session that has lost its lock ends. If its lease
/// has ended, the lock is returned to it.
pub fn carry_out(ctx: &mut Context<'_>, id: HoldId, is_check: bool, step: &mut Step) {
    let Some((renewal, (db, name))) = ctx.with_state(|State { locks, .. }| {
        // The session may have ended since the task was taken: the revocation before it may have released its lock.
        // If its connection has closed, its lock is about to be revoked.
        locks.client_of(id).filter(|_| locks.is_current(id))?;
        locks.fit_lease(id, settings::longest_lease());
        let (hold, lease) = (locks.hold(id)?.clone(), locks.session(id)?.lease);
        let lock = locks.lock_of(hold.record)?;
        Some((Renewal { id, is_check, hold, lease }, lock))
    }) else {
        return;
    };
    ctx.select_db(db);
    let name = OwnedString::new(&name);
    let obstacle = match write_permission::prepare(ctx, name.as_ref(), |key| intent_of(key, &renewal, step)) {
        Ok(mut key) => {
            return match lock_state(&renewal.hold, &key, step.now) {
                SessionLockState::Held(lease_end) => renew(&mut key, &renewal, lease_end, step),
                SessionLockState::Free => handover::grant_free_lock(&mut key, step),
                SessionLockState::Expired => share_sessions::purge_expired(&mut key, step),
                SessionLockState::Returning => share_sessions::return_next(&mut key, step),
                SessionLockState::Lost => key.with_state(|state| state.locks.end_session_of(id)),
            };
        }
        Err(obstacle) => obstacle,
    };
    ctx.with_state(|State { locks, .. }| match obstacle {
        Obstacle::Nothing => {}
        Obstacle::Elsewhere => locks.end_session_of(id),
        Obstacle::Refused => locks.renew_soon(id),
        Obstacle::Later => locks.schedule_renewal_at(id, renewal.lease.renewal_retry_after(step.now)),
    });
}

/// Returns what the task of a session writes to its key.
fn intent_of(key: &Key<'_, '_>, Renewal { id, is_check, hold, .. }: &Renewal, step: &Step) -> Intent {
    let must_wait = match lock_state(hold, key, step.now) {
        SessionLockState::Held(lease_end) if *is_check => {
            key.with_state(|state| state.locks.lease_found(*id, lease_end));
            return Intent::Nothing;
        }
        SessionLockState::Held(lease_end) => {
            key.with_state(|state| state.locks.set_lease_end(*id, lease_end));
            suspension::check_lease_change(key.server()).is_err()
        }
        SessionLockState::Lost => {
            key.with_state(|state| state.locks.end_session_of(*id));
            return Intent::Nothing;
        }
        SessionLockState::Free | SessionLockState::Expired | SessionLockState::Returning => {
            suspension::suspends_grants(key.server())
        }
    };
    if must_wait { Intent::Later } else { Intent::Write(hold.kind) }
}

fn lock_state(hold: &Hold, key: &Key<'_, '_>, now: UnixMs) -> SessionLockState {
    let owner = OwnedString::new(&hold.owner);
    let Ok(lock) = lock_key::read(key, Some(owner.as_ref()), now) else { return SessionLockState::Lost };
    let is_to_return = || key.with_state(|state| state.locks.is_to_return(hold.record, hold.share()));
    if matches!(lock, Lock::Shared(_)) && is_to_return() {
        return SessionLockState::Returning;
    }
    match (lock.held_by(&hold.owner), &lock) {
        (_, Lock::Free) => SessionLockState::Free,
        (Ok(holder), _) if hold.matches(holder) => SessionLockState::Held(holder.lease_end.get()),
        (_, Lock::Shared(_)) if hold.kind == Kind::Shared => match share_key::end_of(key, owner.as_ref()) {
            Some(_) => SessionLockState::Expired,
            None => SessionLockState::Lost,
        },
        _ => SessionLockState::Lost,
    }
}

/// Sets the lease to its full length again. Does not shorten a lease that an external command has made longer or removed.
fn renew(key: &mut Key<'_, '_>, renewal: &Renewal, mut lease_end: Option<UnixMs>, step: &mut Step) {
    let Renewal { id, hold, lease, .. } = renewal;
    let (is_share, owner) = (hold.kind == Kind::Shared, OwnedString::new(&hold.owner));
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
    reviews::schedule_renewal(key, *id, if is_shorter { Some(renewed) } else { lease_end }, step.now);
}
