//! Notifies waiters by message when the slot of their lock moves to another node. The server itself redirects blocked clients
//! only, and a slot may move without an event.

use crate::core::OrBug;
use crate::core::limits::MAX_SKIPPED;
use crate::host::state::{Context, State};
use crate::server::{self, OwnedString, Slot, SlotState};

/// Asks the server for its slots, if that is due. If they have changed, or a slot is migrated, begins a sweep over the queues.
pub fn check(ctx: &mut Context<'_>) {
    if !server::is_in_cluster() {
        return;
    }
    let now = server::monotonic_ms();
    if !ctx.with_state(|State { pending, slots, .. }| pending.has_messages() && slots.begin_check(now)) {
        return;
    }
    let Some(found) = ctx.cluster_slots() else { return };
    ctx.with_state(|State { locks, slots, .. }| {
        if slots.update(found) {
            locks.begin_sweep();
        }
    });
}

/// Checks the next locks of the sweep, up to one that may be on another node. Returns the number of locks that were checked.
pub fn check_next(ctx: &mut Context<'_>) -> usize {
    for skipped in 0..MAX_SKIPPED {
        let Some((queue, db, key)) = ctx.with_state(|State { locks, .. }| {
            let queue = locks.next_in_sweep()?;
            let (db, key) = locks.lock_of(queue).or_bug("a sweep returned a queue that does not exist")?;
            Some((queue, db, key))
        }) else {
            return skipped;
        };
        let slot = server::hash_slot(&key);
        let is_elsewhere = match ctx.with_state(|state| state.slots.slot_state(slot)) {
            // Clients that wait for a lock in an arriving slot were redirected here.
            SlotState::Here | SlotState::Arriving => continue,
            SlotState::Leaving => {
                ctx.select_db(db);
                ctx.slot_of(OwnedString::new(&key).as_ref()) == Slot::Elsewhere
            }
            SlotState::Elsewhere => true,
        };
        if is_elsewhere {
            ctx.with_state(|state| state.locks.abort(queue)); // The server itself redirects blocked clients.
        }
        return skipped.saturating_add(1);
    }
    MAX_SKIPPED
}
