//! Hands a lock on to the next waiters, in five steps: peek at the first waiter, reserve its recipients, take it out of the
//! queue, write, and deliver.

use std::ffi::CStr;

use super::reviews;
use crate::core::limits::MAX_BATCH;
use crate::core::{Cause, EndReason, Grant, Kind, LATEST_SHARE_END, RecordId, UnixMs};
use crate::host::replies::{delivery, messages::Subject};
use crate::host::state::{self, Key, Step};
use crate::host::{conditions::suspension, keys::effects, settings};
use crate::server::{self, OwnedString, Server, Stopwatch};

/// The capacity of a lock that is about to be granted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// The whole lock: its only holder releases it, and the key still names that holder.
    All,
    /// What the key shows.
    FromKey,
}

/// The name of a hand-over in the latency monitor.
const LATENCY_EVENT: &CStr = c"lock-handover";

/// A grant that was written and is to be delivered, and the end of its lease.
type Written = (Grant, Option<UnixMs>);

/// Grants the lock to the first waiters that can be notified, as far as it has capacity, and replies to their clients. Returns
/// `false`, and does not change the key, if there is no such waiter or grants are suspended. If the batch ends while the lock has
/// capacity for the next waiter, schedules another review, after those of other locks.
pub fn hand_on(key: &mut Key<'_, '_>, queue: RecordId, capacity: Capacity, cause: Cause, step: &mut Step) -> bool {
    if suspension::suspends_grants(key.server()) || key.with_state(|state| state.locks.has_used_batch(queue)) {
        return false;
    }
    if key.with_state(|state| state.pending.has_messages()) && !server::may_publish() {
        key.with_state(|state| state.locks.review_soon(queue, cause));
        return false;
    }
    let stopwatch = Stopwatch::start();
    let written = write_batch(key, queue, capacity, cause, step);
    if written.is_empty() {
        return false;
    }
    reviews::schedule(key, queue, step.now);
    for (grant, lease_end) in written {
        delivery::reply_granted(key.server_mut(), grant, lease_end, step.now);
    }
    stopwatch.stop(LATENCY_EVENT);
    true
}

/// Takes waiters out of the queue, and writes their grants.
fn write_batch(
    key: &mut Key<'_, '_>,
    queue: RecordId,
    mut capacity: Capacity,
    cause: Cause,
    step: &mut Step,
) -> Vec<Written> {
    let mut written = Vec::<Written>::new();
    let batch = key.with_state(|state| state.locks.batch);
    let end = settings::wait_end(EndReason::Granted, step.now);
    for tried in 0.. {
        if capacity == Capacity::FromKey && !reviews::has_capacity_for_first(key, queue, step.now) {
            break;
        }
        if written.len() >= batch || tried >= MAX_BATCH {
            // The rest comes in the next iteration of the event loop at the earliest, and after other locks that have work left.
            key.with_state(|state| {
                state.locks.review_in_turn(queue, cause);
                state.locks.end_batch(queue);
            });
            break;
        }
        if !reserve_recipient(key.server(), queue, step) {
            continue;
        }
        let Some(grant) = key.with_state(|state| state.locks.grant_first(queue, end)) else {
            debug_assert!(capacity == Capacity::All, "capacity for the first waiter was found, so there is one");
            break;
        };
        debug_assert!(written.last().is_none_or(|(last, _)| last.turn < grant.turn), "turns rise");
        let lease_end = lease_end_of(&grant, step.now);
        write_grant(key, &grant, lease_end, cause, step.now);
        capacity = Capacity::FromKey;
        written.push((grant, lease_end));
    }
    step.spend(written.len());
    written
}

/// Publishes the message of the next grant, if its waiter is notified by message. Ends the wait if the channel has no subscriber, so
/// that no lock is written that would have to be revoked. Returns whether the lock can be granted to the waiter.
fn reserve_recipient(server: &Server, queue: RecordId, step: &mut Step) -> bool {
    if !state::with(server, |state| state.pending.has_messages()) {
        return true;
    }
    let Some((grant, entry)) = state::with(server, |state| state.locks.first_grant(queue)) else { return true };
    let subject = Subject { db: grant.db, key: &grant.key, owner: &grant.claim.owner };
    let is_reserved = delivery::announce(server, grant.waiter, lease_end_of(&grant, step.now), subject);
    if !is_reserved {
        delivery::drop_unreachable(server, entry, step.now);
        step.spend(1);
    }
    is_reserved
}

/// Returns the end of the lease of a grant, or `None` if it has no lease.
fn lease_end_of(grant: &Grant, now: UnixMs) -> Option<UnixMs> {
    let latest = if grant.claim.kind == Kind::Shared { LATEST_SHARE_END } else { UnixMs::MAX };
    let lease = grant.claim.lease.map(settings::cut).or_else(settings::longest_lease);
    lease.map(|lease| lease.end_from(now).min(latest))
}

fn write_grant(key: &mut Key<'_, '_>, grant: &Grant, lease_end: Option<UnixMs>, cause: Cause, now: UnixMs) {
    debug_assert!(grant.db == key.ctx().db() && *grant.key == *key.name().bytes(), "the grant is of this key");
    debug_assert!(lease_end.is_none_or(|end| end > now || end == LATEST_SHARE_END), "the lease ends in the future");
    effects::grant(key, grant.claim.kind, OwnedString::new(&grant.claim.owner).as_ref(), lease_end);
    key.with_state(|state| {
        // The time since the wait began. The server's clock may have been set back.
        state.stats.record_handover(cause, now.saturating_sub(grant.since));
        // The session and the revocation of the previous grant are void, even if it was to the same owner.
        state.locks.end_session(grant.hold_key());
        state.locks.cancel_revocation(grant.hold_key());
    });
}
