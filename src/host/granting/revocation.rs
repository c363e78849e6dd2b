//! Carries out revocations: releases the locks of disconnected holders.

use super::{handover, reviews, share_sessions};
use crate::core::{Cause, Grant, Kind, OrBug, RETRY_MS, Revocation, RevocationId, UnixMs, increment};
use crate::host::conditions::suspension;
use crate::host::conditions::write_permission::{self, Intent, Obstacle};
use crate::host::keys::lock_handles::{LockHandles, share_hold_key};
use crate::host::keys::share_key::{self, ShareEnd};
use crate::host::keys::{effects, lock_key};
use crate::host::settings;
use crate::host::state::{Context, Key, State, Step};
use crate::server::{OwnedString, StringRef};

/// Carries out a revocation, or postpones it while the server does not accept the write.
pub fn carry_out(ctx: &mut Context<'_>, id: RevocationId, step: &mut Step) {
    let found = ctx.with_state(|state| state.revocations.get(id).cloned());
    let Some(revocation) = found.or_bug("a revocation that is due does not exist") else { return };
    ctx.select_db(revocation.db);
    let name = OwnedString::new(&revocation.key);
    let obstacle = match write_permission::prepare(ctx, name.as_ref(), |key| {
        let is_to_return = is_to_return(&revocation, key, step.now);
        if is_to_return && suspension::suspends_grants(key.server()) {
            Intent::Later
        } else if is_to_return || is_still_held(&revocation, key, step.now) {
            Intent::Write(revocation.kind)
        } else {
            Intent::Nothing
        }
    }) {
        Ok(mut key) => return carry_out_on(&mut key, id, step),
        Err(obstacle) => obstacle,
    };
    ctx.with_state(|State { revocations, .. }| match obstacle {
        // When a slot comes back, the holder in the key belongs to another grant.
        Obstacle::Nothing | Obstacle::Elsewhere => _ = revocations.remove(id),
        Obstacle::Later => revocations.postpone(id, step.now.saturating_add(RETRY_MS)),
    });
}

/// Carries out a revocation on a key that may be written now.
pub fn carry_out_on(key: &mut Key<'_, '_>, id: RevocationId, step: &mut Step) {
    let found = key.with_state(|state| state.revocations.get(id).cloned());
    let Some(revocation) = found.or_bug("a revocation is carried out twice") else { return };
    let is_own = |grant: &Grant| grant.hold_key() == revocation.hold_key();
    debug_assert!(revocation.grant.as_ref().is_none_or(is_own), "a revocation restores the grant that it revokes");
    if is_to_return(&revocation, key, step.now) {
        return return_lock(key, id, &revocation, step);
    }
    key.with_state(|state| state.revocations.remove(id));
    if !is_still_held(&revocation, key, step.now) {
        return;
    }
    if let Some(end) = revocation.grace_end_after(step.now) {
        return begin_grace(key, &revocation, settings::cut_end(end, step.now), step);
    }
    if let (Some(grant), Some(until)) = (revocation.grant, settings::kept_until(step.now)) {
        key.with_state(|state| state.waiting.restore(grant, until));
    }
    let handles = LockHandles::of(key);
    if revocation.kind == Kind::Shared {
        let token = OwnedString::new(&revocation.owner);
        share_sessions::purge_expired(key, step);
        handover::release_share(key, token.as_ref(), handles, Cause::Disconnect, step);
        if !key.is_empty() {
            reviews::schedule_if_waiting(key, step.now); // It may have been the share that ends last.
        }
    } else {
        handover::release(key, handles, Cause::Disconnect, step);
    }
}

/// Returns whether the lock is to be returned for the rest of the grace period: its lease has ended by itself before the server
/// could set it.
fn is_to_return(revocation: &Revocation, key: &Key<'_, '_>, now: UnixMs) -> bool {
    if revocation.return_until(now).is_none() {
        return false;
    }
    if key.is_empty() {
        return true;
    }
    let owner = OwnedString::new(&revocation.owner);
    let has_expired = |end: ShareEnd| share_key::view(key, now).is_some_and(|view| end.has_expired(view.now));
    revocation.kind == Kind::Shared
        && (share_key::end_of(key, owner.as_ref()).is_some_and(has_expired)
            || key.with_state(|state| state.sessions.is_to_return(revocation.hold_key())))
}

/// Returns a lock whose lease has ended, with the end of the grace period as that of its lease. While grants are suspended, the
/// revocation is kept. The shares of a free lock are returned together, before any waiter gets the lock.
fn return_lock(key: &mut Key<'_, '_>, id: RevocationId, revocation: &Revocation, step: &mut Step) {
    if suspension::suspends_grants(key.server()) {
        return;
    }
    let (owner, now) = (OwnedString::new(&revocation.owner), step.now);
    match revocation.kind {
        Kind::Shared if key.is_empty() => handover::grant_free_lock(key, step),
        Kind::Shared => _ = share_sessions::return_for_grace(key, owner.as_ref(), now),
        Kind::Mutex | Kind::Reentrant => {
            let lease_end = revocation.return_until(now).map(|end| settings::cut_end(end, now));
            key.with_state(|state| {
                state.revocations.remove(id);
                increment(&mut state.stats.grace_periods);
            });
            effects::grant_again(key, revocation.kind, owner.as_ref(), revocation.holds, lease_end);
        }
    }
    reviews::schedule_if_waiting(key, now);
}

/// Sets the end of the lease to that of the session's grace period, after which the lock is free. Where a lease may not be
/// lengthened now, it is only shortened.
fn begin_grace(key: &mut Key<'_, '_>, revocation: &Revocation, end: UnixMs, step: &mut Step) {
    let owner = OwnedString::new(&revocation.owner);
    if revocation.kind == Kind::Shared {
        share_sessions::purge_expired(key, step);
    }
    let lease_end = match revocation.kind {
        Kind::Shared => share_key::end_of(key, owner.as_ref()).and_then(ShareEnd::time),
        Kind::Mutex | Kind::Reentrant => key.expiry(),
    };
    if lease_end.is_none_or(|lease_end| lease_end > end) || suspension::check_lease_change(key.server()).is_ok() {
        effects::set_lease_of(key, owner.as_ref(), end);
    }
    key.with_state(|state| increment(&mut state.stats.grace_periods));
    reviews::schedule_if_waiting(key, step.now);
}

/// Carries out the revocation of this token's share, if it has one.
pub fn carry_out_for_share(key: &mut Key<'_, '_>, token: StringRef<'_>, step: &mut Step) {
    let revocation = key.with_state(|state| state.revocation_of(share_hold_key(key, token.bytes())));
    if let Some(revocation) = revocation {
        carry_out_on(key, revocation, step);
    }
}

/// Returns whether the holder that is to lose the lock still holds it.
fn is_still_held(revocation: &Revocation, key: &Key<'_, '_>, now: UnixMs) -> bool {
    let owner = OwnedString::new(&revocation.owner);
    let lock = lock_key::read(key, Some(owner.as_ref()), now);
    lock.is_ok_and(|lock| lock.held_by(&revocation.owner).is_ok_and(|holder| revocation.matches(holder)))
}
