//! Decides whether the module may write now, outside of a command.
//!
//! Most reasons to refuse a write concern all keys: a pause, too few replicas, a cluster that is down. So after a refusal the
//! module writes nothing and does not ask the server again for some time. That time grows with the time for which writes are
//! refused.

use crate::core::Kind;
use crate::host::state::{Context, Key};
use crate::server::{self, Mode, Probe, Slot, StringRef};

/// Returns whether the server accepts writes and its event loop has not just stalled. Does not ask the server soon after a
/// refusal.
pub fn may_write(ctx: &Context<'_>) -> bool {
    let now = server::monotonic_ms();
    let must_wait = ctx.with_state(|state| {
        let may_ask = state.refused.begin_run(now);
        if state.stall.is_running() {
            state.stall.tick(now);
        }
        state.stall.suspends_writes(now) || !may_ask
    });
    !must_wait && ctx.accepts_writes()
}

/// Opens a key for a write, if it is in a slot of this node, the server would accept a client's write to it, and it is not in
/// use. The key is empty or holds a lock of this kind. A refusal concerns all keys, so it is recorded, and nothing else is
/// written in this batch.
pub fn open<'k, 'c>(ctx: &'k mut Context<'c>, slot: Slot, key: StringRef<'k>, kind: Kind) -> Option<Key<'k, 'c>> {
    if slot != Slot::Ours {
        return None;
    }
    let probe = match kind {
        Kind::Mutex => Probe::String,
        Kind::Reentrant => Probe::Hash,
        Kind::Shared => Probe::SortedSet,
    };
    if !ctx.accepts_write_to(key, probe) {
        ctx.with_state(|state| state.refused.refuse());
        return None;
    }
    Some(ctx.open(key, Mode::Write)).filter(|key| !key.is_in_use())
}

/// Returns the state of the slot of a key that is to be written. A cluster that is down is recorded, as a refusal is.
pub fn slot_of(ctx: &mut Context<'_>, key: StringRef<'_>) -> Slot {
    let slot = ctx.slot_of(key);
    if slot == Slot::Unserved {
        ctx.with_state(|state| state.refused.refuse());
    }
    slot
}
