//! Carries out revocations: releases the locks of disconnected holders.

use super::{handover, reviews, share_sessions};
use crate::core::{Cause, Hold, HoldId, Holder, Kind, OrBug, RETRY_MS, Revocation, UnixMs, increment};
use crate::host::conditions::suspension;
use crate::host::conditions::write_permission::{self, Intent, Obstacle};
use crate::host::keys::lock_handles::handles_of;
use crate::host::keys::share_key::{self, ShareEnd};
use crate::host::keys::{effects, lock_key};
use crate::host::settings;
use crate::host::state::{Context, Key, State, Step, with_record};
use crate::server::{OwnedString, StringRef};

/// A hold to be revoked, and why.
struct Revoked {
    hold: Hold,
    revocation: Revocation,
}

/// Carries out a revocation, or postpones it while the server does not accept the write.
pub fn carry_out(ctx: &mut Context<'_>, id: HoldId, step: &mut Step) {
    let found = ctx.with_state(|State { locks, .. }| {
        let hold = locks.hold(id).filter(|_| locks.is_current(id))?.clone();
        let (lock, revocation) = (locks.lock_of(hold.record)?, hold.revocation.as_deref()?.clone());
        Some((lock, Revoked { hold, revocation }))
    });
    let Some(((db, name), revoked)) = found else {
        return ctx.with_state(|state| _ = state.locks.remove_revocation(id)); // It has ended with other shares.
    };
    ctx.select_db(db);
    let name = OwnedString::new(&name);
    let obstacle = match write_permission::prepare(ctx, name.as_ref(), |key| {
        let is_to_return = revoked.is_to_return(key, step.now);
        if is_to_return && suspension::suspends_grants(key.server()) {
            Intent::Later
        } else if is_to_return || revoked.is_still_held(key, step.now) {
            Intent::Write(revoked.hold.kind)
        } else {
            Intent::Nothing
        }
    }) {
        Ok(mut key) => return carry_out_on(&mut key, id, step),
        Err(obstacle) => obstacle,
    };
    ctx.with_state(|State { locks, .. }| match obstacle {
        // When a slot comes back, the holder in the key belongs to another grant.
        Obstacle::Nothing | Obstacle::Elsewhere => _ = locks.remove_revocation(id),
        Obstacle::Refused => locks.revoke_soon(id),
        Obstacle::Later => locks.postpone_revocation(id, step.now.saturating_add(RETRY_MS)),
    });
}

/// Carries out a revocation on a key that may be written now.
pub fn carry_out_on(key: &mut Key<'_, '_>, id: HoldId, step: &mut Step) {
    let found = key.with_state(|State { locks, .. }| {
        let hold = locks.hold(id)?.clone();
        let revocation = hold.revocation.as_deref()?.clone();
        Some(Revoked { hold, revocation })
    });
    let Some(revoked) = found.or_bug("a revocation is carried out twice") else { return };
    if revoked.is_to_return(key, step.now) {
        return return_lock(key, id, &revoked, step);
    }
    key.with_state(|state| state.locks.remove_revocation(id));
    if !revoked.is_still_held(key, step.now) {
        return;
    }
    let Revoked { hold, revocation } = revoked;
    if let Some(end) = revocation.grace_end_after(step.now) {
        return begin_grace(key, &hold, settings::cut_end(end, step.now), step);
    }
    if let (Some(grant), Some(until)) = (revocation.grant, settings::kept_until(step.now)) {
        debug_assert_eq!(grant.claim.owner, hold.owner, "a revocation restores the grant that it revokes");
        key.with_state(|state| state.locks.restore(grant, until));
    }
    let handles = handles_of(key);
    if hold.kind == Kind::Shared {
        let token = OwnedString::new(&hold.owner);
        share_sessions::purge_expired(key, step);
        handover::release_share(key, token.as_ref(), handles, Cause::Disconnect, step);
        if !key.is_empty() {
            reviews::schedule_if_waiting(key, step.now); // It may have been the share that ends last.
        }
    } else {
        handover::release(key, handles, Cause::Disconnect, step);
    }
}

impl Revoked {
    /// Returns whether the lock is to be returned for the rest of the grace period: its lease has ended by itself before the server
    /// could set it.
    fn is_to_return(&self, key: &Key<'_, '_>, now: UnixMs) -> bool {
        if self.revocation.return_until(now).is_none() {
            return false;
        }
        if key.is_empty() {
            return true;
        }
        let owner = OwnedString::new(&self.hold.owner);
        let has_expired =
            |now| share_key::end_of(key, owner.as_ref()).is_some_and(|end: ShareEnd| end.has_expired(now));
        self.hold.kind == Kind::Shared
            && share_key::view(key, now).is_some_and(|view| self.revocation.was_to_return || has_expired(view.now))
    }

    /// Returns whether the holder that is to lose the lock still holds it.
    fn is_still_held(&self, key: &Key<'_, '_>, now: UnixMs) -> bool {
        let owner = OwnedString::new(&self.hold.owner);
        let lock = lock_key::read(key, Some(owner.as_ref()), now);
        let is_revoked = |holder: &Holder<'_, _>| self.hold.is_revoked_from(holder);
        lock.is_ok_and(|lock| lock.held_by(&self.hold.owner).is_ok_and(is_revoked))
    }
}

/// Returns a lock whose lease has ended, with the end of the grace period as that of its lease. While grants are suspended, the
/// revocation is kept. The shares of a free lock are returned together, before any waiter gets the lock.
fn return_lock(key: &mut Key<'_, '_>, id: HoldId, Revoked { hold, revocation }: &Revoked, step: &mut Step) {
    if suspension::suspends_grants(key.server()) {
        return;
    }
    let (owner, now) = (OwnedString::new(&hold.owner), step.now);
    match hold.kind {
        Kind::Shared if key.is_empty() => handover::grant_free_lock(key, step),
        Kind::Shared => _ = share_sessions::return_for_grace(key, owner.as_ref(), now),
        Kind::Mutex | Kind::Reentrant => {
            let lease_end = revocation.return_until(now).map(|end| settings::cut_end(end, now));
            key.with_state(|state| {
                state.locks.remove_revocation(id);
                increment(&mut state.stats.grace_periods);
            });
            effects::grant_again(key, hold.kind, owner.as_ref(), revocation.holds, lease_end);
        }
    }
    reviews::schedule_if_waiting(key, now);
}

/// Sets the end of the lease to that of the session's grace period, after which the lock is free. Where a lease may not be
/// lengthened now, it is only shortened.
fn begin_grace(key: &mut Key<'_, '_>, hold: &Hold, end: UnixMs, step: &mut Step) {
    let owner = OwnedString::new(&hold.owner);
    let mut share_end = None;
    if hold.kind == Kind::Shared {
        share_sessions::purge_expired(key, step);
        share_end = share_key::end_of(key, owner.as_ref()).and_then(ShareEnd::time);
    }
    // External commands may have set the key's expiry time, so that the share ends with it.
    let lease_end = [share_end, key.expiry()].into_iter().flatten().min();
    if lease_end.is_none_or(|lease_end| lease_end > end) || suspension::check_lease_change(key.server()).is_ok() {
        effects::set_lease_of(key, owner.as_ref(), end);
    }
    key.with_state(|state| increment(&mut state.stats.grace_periods));
    reviews::schedule_if_waiting(key, step.now);
}

/// Carries out the revocation of this token's share, if it has one.
pub fn carry_out_for_share(key: &mut Key<'_, '_>, token: StringRef<'_>, step: &mut Step) {
    if let Some(id) = with_record(key, |state, record| state.locks.revocation_of(record, Some(token.bytes()))) {
        carry_out_on(key, id, step);
    }
}
