//! Notifies waiters by message when the slot of their lock moves to another node. The server itself redirects blocked clients
//! only, and a slot may move without an event.

use crate::core::{OrBug, RecordId};
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
            locks.check_slots();
        }
    });
}

/// Aborts the waits for a lock if its slot has moved to another node.
pub fn check_lock(ctx: &mut Context<'_>, queue: RecordId) {
    let found = ctx.with_state(|State { locks, .. }| locks.lock_of(queue));
    let Some((db, key)) = found.or_bug("a sweep returned a queue that does not exist") else { return };
    let slot = server::hash_slot(&key);
    let is_elsewhere = match ctx.with_state(|state| state.slots.slot_state(slot)) {
        // Clients that wait for a lock in an arriving slot were redirected here.
        SlotState::Here | SlotState::Arriving => false,
        SlotState::Leaving => {
            ctx.select_db(db);
            ctx.slot_of(OwnedString::new(&key).as_ref()) == Slot::Elsewhere
        }
        SlotState::Elsewhere => true,
    };
    if is_elsewhere {
        ctx.with_state(|state| state.locks.abort(queue)); // The server itself redirects blocked clients.
    }
}
