//! Decides whether the module may write now, outside of a command.

use super::state::{self, Context};
use crate::core::Kind;
use crate::server::{self, Probe, StringRef};

/// Returns whether the server accepts writes, and has not stalled a moment ago.
pub fn may_write(ctx: &Context<'_>) -> bool {
    let now = server::monotonic_ms();
    let unsettled = state::with(|state| {
        state.write_refused = false;
        if state.stall.is_running() {
            state.stall.tick(now);
        }
        state.stall.is_holding_off(now)
    });
    planted!(StallIsUnseen => return ctx.accepts_writes());
    planted!(PauseIsUnseen => return !unsettled);
    !unsettled && ctx.accepts_writes()
}

/// Returns whether the server would accept a client's write to this key, which is empty or holds a lock of this kind.
///
/// A refusal concerns all keys, so it is recorded: nothing else is tried in this batch.
pub fn accepts_write_to(ctx: &mut Context<'_>, key: StringRef<'_>, kind: Kind) -> bool {
    planted!(FenceIsUnseen => return true);
    let probe = match kind {
        Kind::Mutex => Probe::String,
        Kind::Reentrant => Probe::Hash,
        Kind::Shared => Probe::SortedSet,
    };
    let welcome = ctx.accepts_write_to(key, probe);
    state::with(|state| state.write_refused |= !welcome);
    welcome
}
