//! May the module write now, of its own accord?

use super::state::{self, Context};
use crate::core::Kind;
use crate::server::{self, Probe, StringRef};

/// Whether the server takes writes, and knows the world as it is.
pub fn may_write(ctx: &Context<'_>) -> bool {
    let now = server::steady_ms();
    let unsettled = state::with(|state| {
        state.write_refused = false;
        if state.stall.is_running() {
            state.stall.tick(now);
        }
        state.stall.is_holding_off(now)
    });
    !unsettled && ctx.takes_writes()
}

/// Whether the server would take a client's write to this key, which is empty or holds a lock of this kind. If not, that is no
/// matter of the key: it is noted that nothing else need be tried now.
pub fn write_is_welcome(ctx: &mut Context<'_>, key: StringRef<'_>, kind: Kind) -> bool {
    let probe = match kind {
        Kind::Mutex => Probe::String,
        Kind::Reentrant => Probe::Hash,
    };
    let welcome = ctx.write_is_welcome(key, probe);
    state::with(|state| state.write_refused |= !welcome);
    welcome
}
