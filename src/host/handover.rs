//! The hand-over: a lock that is free goes to the first in line, in the same step.

use super::blocked::{self, Granting, Stage};
use super::effect;
use super::key::Key;
use super::state;
use super::text::OwnedText;
use crate::core::{Cause, QueueId, UnixMs};

/// Gives the lock to the first in line, whoever the key still names, and answers that client. `false`: nobody waits
/// after all, and nothing was done.
pub fn hand_over(key: &mut Key<'_>, queue: QueueId, cause: Cause, now: UnixMs) -> bool {
    let next = state::with(|state| {
        let lock = state.room.lock_of(queue)?;
        state.room.serve_first(queue).map(|grant| (lock, grant))
    });
    let Some(((db, key_name), grant)) = next else { return false };
    let claim = grant.claim;
    let lease_end = claim.lease.map(|lease| lease.from_now(now));
    effect::grant(key, claim.kind, *OwnedText::new(key.ctx, &claim.owner), lease_end);
    state::with(|state| {
        state.stats.handed_over(cause, now.saturating_sub(grant.since));
        state.room.review_after(queue, lease_end);
    });
    blocked::answer(
        grant.connection,
        Stage::Granted(Granting { db, key: key_name, kind: claim.kind, owner: claim.owner }),
    );
    true
}
