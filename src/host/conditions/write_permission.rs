//! Decides whether the module may write now, outside of a command.
//!
//! Most reasons to refuse a write concern all keys: a pause, too few replicas, a cluster that is down. So after a refusal the
//! module writes nothing and does not ask the server again for some time. That time grows with the time for which writes are
//! refused.

use crate::core::Kind;
use crate::host::state::{Context, Key};
use crate::server::{self, Mode, Probe, Slot, StringRef};

/// What is to be written to a key that was read.
pub enum Intent {
    Nothing,
    /// A lock of this kind. The key is empty or holds such a lock.
    Write(Kind),
    /// A lock, but not now.
    Later,
}

/// Why a key is not opened for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nothing is to be written.
    Nothing,
    /// The slot of the key is on another node.
    Elsewhere,
    /// The server does not accept writes now. What stays due is tried again after a while.
    Refused,
    /// The write is to come later.
    Later,
}

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

/// Prepares a write to a key: reads it, asks `intent_of` what is to be written, asks the server whether this node has the slot and
/// would accept a client's write, and opens the key for the write. A refusal concerns all keys, so it is recorded, and nothing else
/// is written in this batch.
///
/// # Errors
///
/// The obstacle, if the key cannot be written now.
pub fn prepare<'k, 'c>(
    ctx: &'k mut Context<'c>,
    name: StringRef<'k>,
    intent_of: impl FnOnce(&Key<'_, 'c>) -> Intent,
) -> Result<Key<'k, 'c>, Obstacle> {
    let slot = ctx.slot_of(name);
    if slot == Slot::Elsewhere {
        return Err(Obstacle::Elsewhere);
    }
    let probe = match intent_of(&ctx.open(name, Mode::Read)) {
        Intent::Nothing => return Err(Obstacle::Nothing),
        Intent::Later => return Err(Obstacle::Later),
        Intent::Write(Kind::Mutex) => Probe::String,
        Intent::Write(Kind::Reentrant) => Probe::Hash,
        Intent::Write(Kind::Shared) => Probe::SortedSet,
    };
    if slot == Slot::Unserved || !ctx.accepts_write_to(name, probe) {
        ctx.with_state(|state| state.refused.refuse());
        // What is refused for one slot must not be the first to be tried again.
        return Err(if slot == Slot::Unserved { Obstacle::Later } else { Obstacle::Refused });
    }
    Some(ctx.open(name, Mode::Write)).filter(|key| !key.is_in_use()).ok_or(Obstacle::Later)
}
