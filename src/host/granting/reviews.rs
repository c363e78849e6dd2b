//! When a lock is looked at again, because there may be room in it for the first in line.

use crate::core::{Cause, Kind, Limit, QueueId, SessionId, UnixMs};
use crate::host::background::alarm;
use crate::host::background::suspension;
use crate::host::keys::lock_handles::LockHandles;
use crate::host::keys::share_key::{self, ShareView};
use crate::host::state::{self, Key};
use crate::server::ValueType;

/// What the first in line asks for: a lock of this kind, and of shares up to this number.
type Wanted = (Kind, Option<Limit>);

/// Returns whether somebody is in line, and the lock has room for the first.
pub fn has_capacity_for_first(key: &Key<'_, '_>, queue: QueueId, now: UnixMs) -> bool {
    first_wanted(queue).is_some_and(|wanted| key.is_empty() || has_capacity(share_key::view(key, now).as_ref(), wanted))
}

fn first_wanted(queue: QueueId) -> Option<Wanted> {
    state::with(|state| state.waiting.first(queue).map(|claim| (claim.kind, claim.limit)))
}

/// Returns whether there is room beside the shares that are held, if it is them who hold the lock.
fn has_capacity(shares: Option<&ShareView>, (kind, limit): Wanted) -> bool {
    kind == Kind::Shared && shares.is_some_and(|shares| limit.is_none_or(|limit| limit.has_capacity(shares.held)))
}

/// Schedules the review of a lock for the next round of the loop.
pub fn soon(key: &Key<'_, '_>, cause: Cause) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|state| {
        if let Some(queue) = state.waiting.queue_of(db, name) {
            state.waiting.review_soon(queue, cause);
        }
    });
    alarm::set();
}

/// Schedules the rest of a review that has stopped after a batch, although the lock has room for the first in line. It goes on in the
/// next iteration of the event loop at the earliest, and behind other locks that have work left.
pub fn in_turn(queue: QueueId, cause: Cause) {
    state::with(|state| {
        state.had_batch = true;
        state.waiting.review_in_turn(queue, cause);
        state.waiting.end_batch(queue, state.run);
    });
    alarm::set();
}

/// Schedules the review of a lock that is held for the time when it may have room for the first in line.
pub fn schedule(key: &Key<'_, '_>, queue: QueueId, now: UnixMs) {
    if suspension::suspends_grant() {
        return; // All are looked at when that is over.
    }
    if key.value_type() != ValueType::SortedSet {
        // An expired key that the server still shows is looked at again a millisecond later.
        let lease_end = key.expiry().map(|end| end.max(now));
        return state::with(|state| state.waiting.review_at_lease_end(queue, lease_end));
    }
    let (view, first) = (share_key::view(key, now), first_wanted(queue));
    let needs_purge = view.as_ref().is_some_and(ShareView::needs_purge);
    if needs_purge || first.is_some_and(|wanted| key.is_empty() || has_capacity(view.as_ref(), wanted)) {
        return state::with(|state| state.waiting.review_in_turn(queue, state.waiting.cause_of(queue)));
    }
    let wants_share = first.is_some_and(|(kind, _)| kind == Kind::Shared);
    // A Sorted Set that is no lock is looked at again when it expires.
    let frees_capacity = view.and_then(|view| if wants_share { view.earliest } else { view.latest }.time());
    let end = [frees_capacity, key.expiry()].into_iter().flatten().min().map(|end| end.max(now));
    state::with(|state| state.waiting.review_at_lease_end(queue, end));
}

/// Records the new end of a session's lease, and schedules the next renewal and, if clients wait, a review.
pub fn schedule_renewal(key: &Key<'_, '_>, id: SessionId, lease_end: Option<UnixMs>, now: UnixMs) {
    state::with(|state| state.sessions.renewed(id, lease_end, now));
    schedule_if_waiting(key, now);
}

/// Schedules the review of a lock that is held, if anybody is in line for it.
pub fn schedule_if_waiting(key: &Key<'_, '_>, now: UnixMs) {
    if let Some(queue) = LockHandles::of(key).and_then(|handles| handles.queue) {
        schedule(key, queue, now);
    }
}
