//! Tells those who wait for a message that the slot of their lock has left. The server tells blocked clients only, and a
//! slot may leave without an event.

use super::state::{self, Context, State};
use crate::core::QueueId;
use crate::server::{self, OwnedString, Slot, Whereabouts};

/// Asks the server for its slots, if that is due. If they have changed, or keys leave one by one, all locks that are
/// waited for are looked at.
pub fn look(ctx: &mut Context<'_>) {
    if !server::is_in_cluster() {
        return;
    }
    let now = server::monotonic_ms();
    if !state::with(|State { waiters, slots, .. }| waiters.has_messages() && slots.take_look(now)) {
        return;
    }
    let Some(found) = ctx.cluster_slots() else { return };
    state::with(|State { waiting, slots, .. }| {
        if slots.update(found) {
            waiting.begin_round();
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
const MOST_PASSED_BY: usize = 100;

/// Looks at the next locks of the round, up to one that may be elsewhere. Returns how many there were.
pub fn look_at_next(ctx: &mut Context<'_>) -> usize {
    for passed in 0..MOST_PASSED_BY {
        let Some((queue, db, key)) = state::with(|State { waiting, .. }| {
            let queue = waiting.next_in_round()?;
            waiting.lock_of(queue).map(|(db, key)| (queue, db, key))
        }) else {
            return passed;
        };
        let slot = server::hash_slot(&key);
        let has_left = match state::with(|state| state.slots.whereabouts(slot)) {
            // Who waits there has asked as a client does that was sent here.
            Whereabouts::Here | Whereabouts::Arriving => continue,
            Whereabouts::Leaving => {
                ctx.select_db(db);
                ctx.slot_of(OwnedString::new(&key).as_ref()) == Slot::Elsewhere
            }
            Whereabouts::Elsewhere => true,
        };
        if has_left {
            lose_waiters(queue);
        }
        return passed.saturating_add(1);
    }
    MOST_PASSED_BY
}

/// Ends the waits for a lock that is another node's, of those that are told by message.
pub fn lose_waiters(queue: QueueId) {
    state::with(|state| state.waiting.lose(queue));
}
