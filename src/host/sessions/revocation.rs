//! Carries out revocations: releases the locks of disconnected holders.

use super::share_sessions;
use crate::core::{Budget, Cause, Kind, OrBug, RETRY_MS, Revocation, RevocationId, UnixMs};
use crate::host::background::write_permission;
use crate::host::granting::{handover, reviews};
use crate::host::keys::lock_handles::{LockHandles, share_hold_key};
use crate::host::keys::lock_key;
use crate::host::settings;
use crate::host::state::{self, Context, Key};
use crate::server::{Mode, OwnedString, Server, Slot, StringRef};

/// Carries out a revocation, or postpones it while the server does not accept the write.
pub fn carry_out(ctx: &mut Context<'_>, id: RevocationId, now: UnixMs, budget: &mut Budget) {
    let found = ctx.with_state(|state| state.revocations.get(id).cloned());
    let Some(revocation) = found.or_bug("a revocation that is due does not exist") else { return };
    ctx.select_db(revocation.db);
    let name = OwnedString::new(&revocation.key);
    if !is_still_held(&revocation, &ctx.open(name.as_ref(), Mode::Read), now) {
        return ctx.with_state(|state| _ = state.revocations.remove(id));
    }
    let slot = write_permission::slot_of(ctx, name.as_ref());
    if slot == Slot::Elsewhere {
        // When the slot comes back, the holder in the key belongs to another grant.
        return ctx.with_state(|state| _ = state.revocations.remove(id));
    }
    let postpone = |server: &Server| {
        state::with(server, |state| {
            debug_assert!(state.revocations.get(id).is_some(), "a revocation exists until it is carried out");
            state.revocations.postpone(id, now.saturating_add(RETRY_MS));
        });
    };
    if slot != Slot::Ours || !write_permission::accepts_write_to(ctx, name.as_ref(), revocation.kind) {
        return postpone(ctx.server());
    }
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    if key.is_in_use() {
        return postpone(key.server());
    }
    carry_out_on(&mut key, id, now, budget);
}

/// Carries out a revocation on a key that may be written now.
pub fn carry_out_on(key: &mut Key<'_, '_>, id: RevocationId, now: UnixMs, budget: &mut Budget) {
    let removed = key.with_state(|state| state.revocations.remove(id));
    let Some(revocation) = removed.or_bug("a revocation is carried out twice") else { return };
    debug_assert!(
        revocation.grant.as_ref().is_none_or(|grant| grant.hold_key() == revocation.hold_key()),
        "a revocation restores the grant that it revokes"
    );
    if !is_still_held(&revocation, key, now) {
        return;
    }
    if let (Some(grant), Some(until)) = (revocation.grant, settings::kept_until(now)) {
        key.with_state(|state| state.waiting.restore(grant, until));
    }
    let handles = LockHandles::of(key);
    if revocation.kind == Kind::Shared {
        let token = OwnedString::new(&revocation.owner);
        share_sessions::purge_expired(key, now, budget);
        handover::release_share(key, token.as_ref(), handles, Cause::Disconnect, now, budget);
        if !key.is_empty() {
            reviews::schedule_if_waiting(key, now); // It may have been the share that ends last.
        }
    } else {
        handover::release(key, handles, Cause::Disconnect, now, budget);
    }
}

/// Carries out the revocation of this token's share, if it has one.
pub fn carry_out_for_share(key: &mut Key<'_, '_>, token: StringRef<'_>, now: UnixMs, budget: &mut Budget) {
    let hold_key = share_hold_key(key, token.bytes());
    let revocation = key.with_state(|state| {
        if let Some(session) = state.sessions.take_orphan(hold_key) {
            state.revocations.add(Revocation::of_session(session));
        }
        state.revocations.find(hold_key)
    });
    if let Some(revocation) = revocation {
        carry_out_on(key, revocation, now, budget);
    }
}

/// Returns whether the holder that is to lose the lock still holds it.
fn is_still_held(revocation: &Revocation, key: &Key<'_, '_>, now: UnixMs) -> bool {
    let owner = OwnedString::new(&revocation.owner);
    let lock = lock_key::read_for(key, Some(owner.as_ref()), now);
    lock.is_ok_and(|lock| lock.held_by(&revocation.owner).is_ok_and(|holder| revocation.matches(holder)))
}
