//! The module's timer: when the server is to call the module next.

use crate::core::{DueFilter, TICK_MS, UnixMs};
use crate::host::state::{self, Locks};
use crate::server;

/// Sets the timer to the time when something is due next.
///
/// While a stall of the event loop matters, the timer also ticks often enough to detect one.
pub fn set() {
    let now = server::now_ms();
    set_at(state::with(|state| {
        let pulse = state.must_tick().then(|| now.saturating_add(TICK_MS));
        if pulse.is_none() {
            state.stall.stop();
        } else if !state.stall.is_running() {
            state.stall.tick(server::monotonic_ms());
        }
        let at_once = state.must_run_soon().then_some(UnixMs::MIN);
        let suspended = state.recovery.is_suspending().then(|| now.saturating_add(state.grants_suspended_ms()));
        let waiting = state.waiting.next_due(DueFilter::All);
        let due = [pulse, at_once, suspended, state.revocations.next_due(), waiting, state.sessions.next_due()];
        due.into_iter().flatten().min()
    }));
}

/// Sets the timer to `time`, if there is one. The timer may fire earlier.
pub fn set_at(time: Option<UnixMs>) {
    if let Some(time) = time {
        server::set_timer::<Locks>(time);
    }
}
