//! Sets the module's timer, from which the background work runs.

use crate::core::{TICK_MS, UnixMs};
use crate::host::state::{self, Locks};
use crate::server::{self, Server};

/// Sets the timer to the earliest time at which something is due. Every call of the module that may schedule work ends with this.
#[inline(always)]
pub fn set(server: &Server) {
    if state::with(server, |state| state.may_need_alarm()) {
        set_to_earliest(server);
    }
}

/// While stalls of the event loop matter, the timer also fires every [`TICK_MS`], to detect them.
fn set_to_earliest(server: &Server) {
    let now = server::now_ms();
    set_at(state::with(server, |state| {
        let tick = state.must_tick().then(|| now.saturating_add(TICK_MS));
        if tick.is_none() {
            state.stall.stop();
        } else if !state.stall.is_running() {
            state.stall.tick(server::monotonic_ms());
        }
        let suspended = state.recovery.is_suspending().then(|| now.saturating_add(state.grants_suspended_ms()));
        // While writes are refused, what writes is due no earlier than the next retry.
        let due = match state.refused.retry_ms(server::monotonic_ms).map(|ms| now.saturating_add(ms)) {
            None => [suspended, state.next_due(true)],
            Some(retry) => {
                let writes = [suspended, state.next_due(true)].into_iter().flatten().min();
                [writes.map(|due| due.max(retry)), state.next_due(false)]
            }
        };
        let earliest = [tick].into_iter().chain(due).flatten().min();
        debug_assert!(earliest.is_some() || !state.has_work(), "while there is work the timer is set");
        earliest
    }));
}

/// Sets the timer to `time`, if there is one. The timer may fire earlier.
pub fn set_at(time: Option<UnixMs>) {
    if let Some(time) = time {
        server::set_timer::<Locks>(time);
    }
}
