//! Takes locks back from connections that are gone.

use super::handover;
use super::lock_handles::LockHandles;
use super::lock_key;
use super::permission;
use super::settings;
use super::state::{self, Context, Key};
use crate::core::{Cause, Lock, Revocation, RevocationId, UnixMs};
use crate::server::{Mode, OwnedString, Slot};

/// The time after which a write that the server does not accept now is tried again, in milliseconds.
pub const RETRY_MS: i64 = 20;

/// Carries out a revocation, or postpones it while the server does not accept the write.
pub fn carry_out(ctx: &mut Context<'_>, id: RevocationId, now: UnixMs) {
    let Some(revocation) = state::with(|state| state.revocations.get(id).cloned()) else { return };
    ctx.select_db(revocation.db);
    let name = OwnedString::new(&revocation.key);
    if !is_theirs(&revocation, &ctx.open(name.as_ref(), Mode::Read)) {
        return state::with(|state| _ = state.revocations.remove(id));
    }
    let slot = ctx.slot_of(name.as_ref());
    if slot == Slot::Elsewhere {
        // Whatever the key holds when the slot comes back belongs to another grant.
        return state::with(|state| _ = state.revocations.remove(id));
    }
    if slot != Slot::Ours || !permission::accepts_write_to(ctx, name.as_ref(), revocation.kind) {
        planted!(RefusedRevocationIsOver => return state::with(|state| _ = state.revocations.remove(id)));
        return state::with(|state| state.revocations.postpone(id, now.saturating_add(RETRY_MS)));
    }
    carry_out_on(&mut ctx.open(name.as_ref(), Mode::Write), id, now);
}

/// Carries out a revocation on a key that may be written now.
pub fn carry_out_on(key: &mut Key<'_, '_>, id: RevocationId, now: UnixMs) {
    let Some(revocation) = state::with(|state| state.revocations.remove(id)) else { return };
    if !is_theirs(&revocation, key) {
        return;
    }
    if let (Some(grant), Some(until)) = (revocation.grant, settings::kept_until(now)) {
        state::with(|state| state.waiting.restore(grant, until));
    }
    let handles = LockHandles::of(key);
    handover::release(key, handles, Cause::Disconnect, now);
}

fn is_theirs(revocation: &Revocation, key: &Key<'_, '_>) -> bool {
    lock_key::read(key).is_ok_and(|lock| matches!(lock, Lock::Held(holder) if revocation.matches(&holder)))
}
