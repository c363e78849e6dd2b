//! Takes locks from connections that are gone.

use super::config;
use super::context::Context;
use super::handover;
use super::key::{Key, Mode};
use super::permission::{self, Slot};
use super::pump::RETRY_MS;
use super::remembered::Remembered;
use super::state;
use super::text::OwnedText;
use crate::core::{Cause, Lock, TakeBack, TakeBackId, UnixMs};

/// Takes a lock back of the module's own accord, or puts it off while the server does not allow it.
pub fn carry_out(ctx: Context<'_>, id: TakeBackId, now: UnixMs) {
    let Some(take_back) = state::with(|state| state.take_backs.get(id).cloned()) else { return };
    ctx.select_db(take_back.db);
    let name = OwnedText::new(ctx, &take_back.key);
    if !is_theirs(&take_back, &Key::open(ctx, name.text(), Mode::Read)) {
        return state::with(|state| _ = state.take_backs.remove(id));
    }
    let slot = permission::slot_of(ctx, name.text());
    if slot == Slot::Elsewhere {
        // Whatever the key holds when the slot comes back is another grant's.
        return state::with(|state| _ = state.take_backs.remove(id));
    }
    if slot != Slot::Ours || !permission::write_is_welcome(ctx, name.text(), Some(take_back.kind)) {
        return state::with(|state| state.take_backs.put_off(id, now.saturating_add(RETRY_MS)));
    }
    carry_out_on(&mut Key::open(ctx, name.text(), Mode::Write), id, now);
}

/// Takes back the lock of this key, which may be written now.
pub fn carry_out_on(key: &mut Key<'_>, id: TakeBackId, now: UnixMs) {
    let Some(take_back) = state::with(|state| state.take_backs.remove(id)) else { return };
    if !is_theirs(&take_back, key) {
        return;
    }
    if let (Some(grant), Some(until)) = (take_back.grant, config::kept_until(now)) {
        state::with(|state| state.room.restore(grant, until));
    }
    handover::release(key, Remembered::of(key), Cause::Disconnect, now);
}

fn is_theirs(take_back: &TakeBack, key: &Key<'_>) -> bool {
    key.read().is_ok_and(|lock| matches!(lock, Lock::Held(held) if take_back.is_of(&held)))
}
