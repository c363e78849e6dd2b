//! Tells those who wait for a message that the slot of their lock has left. The server tells blocked clients only, and a
//! slot may leave without an event.

use crate::core::QueueId;
use crate::host::state::{self, Context, State};
use crate::server::{self, OwnedString, Slot, SlotState};

/// Asks the server for its slots, if that is due. If they have changed, or keys leave one by one, all locks that are
/// waited for are looked at.
pub fn check(ctx: &mut Context<'_>) {
    if !server::is_in_cluster() {
        return;
    }
    let now = server::monotonic_ms();
    if !state::with(|State { pending, slots, .. }| pending.has_messages() && slots.begin_check(now)) {
        return;
    }
    let Some(found) = ctx.cluster_slots() else { return };
    state::with(|State { waiting, slots, .. }| {
        if slots.update(found) {
            waiting.begin_sweep();
        }
    });
}

/// Records that somebody waits for a message about this lock.
pub fn add_waiter(key: &[u8]) {
    if server::is_in_cluster() {
        let slot = server::hash_slot(key);
        state::with(|state| state.slots.add_waiter(slot));
    }
}

/// How many locks are passed by in one step that are certainly here.
const MAX_SKIPPED: usize = 100;

/// Looks at the next locks of the round, up to one that may be elsewhere. Returns how many there were.
pub fn check_next(ctx: &mut Context<'_>) -> usize {
    for skipped in 0..MAX_SKIPPED {
        let Some((queue, db, key)) = state::with(|State { waiting, .. }| {
            let queue = waiting.next_in_sweep()?;
            waiting.lock_of(queue).map(|(db, key)| (queue, db, key))
        }) else {
            return skipped;
        };
        let slot = server::hash_slot(&key);
        let is_elsewhere = match state::with(|state| state.slots.slot_state(slot)) {
            // Who waits there has asked as a client does that was sent here.
            SlotState::Here | SlotState::Arriving => continue,
            SlotState::Leaving => {
                ctx.select_db(db);
                ctx.slot_of(OwnedString::new(&key).as_ref()) == Slot::Elsewhere
            }
            SlotState::Elsewhere => true,
        };
        if is_elsewhere {
            abort_waiters(queue);
        }
        return skipped.saturating_add(1);
    }
    MAX_SKIPPED
}

/// Ends the waits for a lock that is another node's, of those that are told by message.
pub fn abort_waiters(queue: QueueId) {
    state::with(|state| state.waiting.abort(queue));
}
