//! Schedules reviews: the times at which a lock may have capacity for the first waiter.

use crate::core::{HoldId, Kind, Limit, RecordId, UnixMs};
use crate::host::keys::share_key::{self, ShareView};
use crate::host::state::{self, Key, State};
use crate::host::{conditions::suspension, keys::lock_handles::handles_of};
use crate::server::{Server, ValueType};

/// Returns whether the queue has a waiter, and the lock has capacity for the first.
pub fn has_capacity_for_first(key: &Key<'_, '_>, queue: RecordId, now: UnixMs) -> bool {
    first_wanted(key.server(), queue)
        .is_some_and(|wanted| key.is_empty() || has_capacity(share_key::view(key, now).as_ref(), wanted))
}

/// Returns the kind of the lock that the first waiter claims, and for a share its limit. While shares are being returned to their
/// sessions, all waiters wait.
fn first_wanted(server: &Server, queue: RecordId) -> Option<(Kind, Option<Limit>)> {
    state::with(server, |State { locks, .. }| {
        locks.first(queue).filter(|_| !locks.has_shares_to_return(queue)).map(|claim| (claim.kind, claim.limit))
    })
}

/// Returns whether a lock that is held by `shares` has capacity. It has none if shares are not what holds it.
fn has_capacity(shares: Option<&ShareView>, (kind, limit): (Kind, Option<Limit>)) -> bool {
    kind == Kind::Shared && shares.is_some_and(|shares| limit.is_none_or(|limit| limit.has_capacity(shares.held)))
}

/// Schedules the review of a lock for the time when it may have capacity for the first waiter. A free lock that could not be
/// granted now is reviewed in the next iteration of the event loop.
pub fn schedule(key: &Key<'_, '_>, queue: RecordId, now: UnixMs) {
    if suspension::suspends_grants(key.server()) {
        return; // All locks are reviewed when the suspension ends.
    }
    if key.is_empty() {
        return key.with_state(|state| state.locks.review_in_turn(queue, state.locks.cause_of(queue)));
    }
    if key.value_type() != ValueType::SortedSet {
        // The server may still show a key that has expired. The lock is reviewed a millisecond later.
        let lease_end = key.expiry().map(|end| end.max(now));
        return key.with_state(|state| state.locks.review_at_lease_end(queue, lease_end));
    }
    let (view, first) = (share_key::view(key, now), first_wanted(key.server(), queue));
    let needs_purge = view.as_ref().is_some_and(ShareView::needs_purge);
    if needs_purge || first.is_some_and(|wanted| has_capacity(view.as_ref(), wanted)) {
        return key.with_state(|state| state.locks.review_in_turn(queue, state.locks.cause_of(queue)));
    }
    let wants_share = first.is_some_and(|(kind, _)| kind == Kind::Shared);
    // A Sorted Set that is not a lock is reviewed when it expires.
    let frees_capacity = view.and_then(|view| if wants_share { view.earliest } else { view.latest }.time());
    let end = [frees_capacity, key.expiry()].into_iter().flatten().min().map(|end| end.max(now));
    key.with_state(|state| state.locks.review_at_lease_end(queue, end));
}

/// Records the new end of a session's lease. Schedules the next renewal and, if clients wait, a review.
pub fn schedule_renewal(key: &Key<'_, '_>, id: HoldId, lease_end: Option<UnixMs>, now: UnixMs) {
    debug_assert!(lease_end.is_none_or(|end| end >= now), "a lease that was renewed ends in the future");
    key.with_state(|state| state.locks.renewed(id, lease_end, now));
    schedule_if_waiting(key, now);
}

/// Schedules the review of a lock that is held, if it has a queue.
pub fn schedule_if_waiting(key: &Key<'_, '_>, now: UnixMs) {
    if let Some(queue) = handles_of(key).and_then(|handles| handles.queue) {
        schedule(key, queue, now);
    }
}
