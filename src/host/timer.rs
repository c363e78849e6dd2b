//! When the module is to be called again of its own accord.

use super::state::{self, Locks};
use crate::core::{DueFilter, TICK_MS, UnixMs};
use crate::server;

/// Sees to it that the timer fires when the next thing falls due, and while there may be something to write often enough
/// to notice that the loop stands still.
pub fn set() {
    let now = server::now_ms();
    set_at(state::with(|state| {
        let pulse = state.has_work().then(|| now.saturating_add(TICK_MS));
        if pulse.is_none() {
            state.stall.stop();
        } else if !state.stall.is_running() {
            state.stall.tick(server::steady_ms());
        }
        let due =
            [pulse, state.revocations.next_due(), state.waiting.next_due(DueFilter::All), state.sessions.next_due()];
        due.into_iter().flatten().min()
    }));
}

/// Sees to it that the timer fires at `time`, if any, or earlier.
pub fn set_at(time: Option<UnixMs>) {
    if let Some(time) = time {
        server::fire_at::<Locks>(time);
    }
}
