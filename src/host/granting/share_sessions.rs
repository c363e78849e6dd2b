//! Purges the expired shares of a lock, and returns shares to their sessions.

use super::reviews;
use crate::core::limits::MAX_PURGED;
use crate::core::{HoldId, HoldKey, LATEST_SHARE_END, Lease, RecordId, ShareBatch, UnixMs, increment};
use crate::host::keys::{effects, lock_handles::share_hold_key, share_key};
use crate::host::state::{Key, State, Step, with_record};
use crate::host::{conditions::suspension, settings};
use crate::server::{OwnedString, StringRef};

/// Returns whether a shared lock has expired members to purge, or capacity for the first waiter.
pub fn has_work(key: &Key<'_, '_>, queue: RecordId, now: UnixMs) -> bool {
    share_key::view(key, now).is_some_and(|view| view.needs_purge()) || reviews::has_capacity_for_first(key, queue, now)
}

/// Removes the expired members of a shared lock, or renews those with an open session. Lets the key expire with its last share.
pub fn purge_expired(key: &mut Key<'_, '_>, step: &mut Step) {
    if suspension::suspends_grants(key.server()) {
        return; // Shares with a session are returned after the suspension. Expired members do not count as holders.
    }
    let Some(view) = share_key::view(key, step.now).filter(|view| view.needs_purge() || view.now != step.now) else {
        return;
    };
    if view.now != step.now && !lives_on(key, step) {
        return; // The server would expire the key when a write signals it. Expired members do not count, and are removed later.
    }
    if !view.earliest.has_expired(step.now) {
        return effects::fit_expiry_to_last_share(key);
    }
    let mut seen = 0_usize;
    while let Some(token) = share_key::first_expired(key, step.now) {
        if seen == MAX_PURGED {
            begin_return(key); // No waiter is granted a share before the sessions have theirs.
            break;
        }
        seen = seen.saturating_add(1);
        if !return_to(key, token.as_ref().bytes(), step.now) {
            let hold_key = share_hold_key(key, token.as_ref().bytes());
            key.with_state(|state| state.locks.end_session(hold_key));
            effects::remove_share(key, token.as_ref(), step.now);
        }
    }
    step.spend(seen);
    reviews::schedule_if_waiting(key, step.now);
}

/// Begins to return the shares that have expired to their sessions, if that has not begun.
fn begin_return(key: &Key<'_, '_>) {
    with_record(key, |State { locks, .. }, record| {
        if locks.has_shares(record) && !locks.is_returning(record) {
            locks.begin_return(record);
        }
    });
}

/// Returns shares to their sessions whose key should have expired, but still exists because the server's cached time does not
/// advance. Returns whether the renewed shares keep the key.
#[cold]
fn lives_on(key: &mut Key<'_, '_>, step: &mut Step) -> bool {
    begin_return(key);
    return_next(key, step);
    key.expiry().is_none_or(|end| end >= step.now)
}

/// Returns the shares of a free lock to the sessions whose leases have ended although a connection is open.
/// The other sessions end: external commands have removed their shares.
pub fn return_to_sessions(key: &mut Key<'_, '_>, step: &mut Step) {
    debug_assert!(key.is_empty(), "the lock is free");
    if with_record(key, |state, record| state.locks.needs_recheck(record)) {
        return end_sessions(key); // It is unknown which shares external commands have removed.
    }
    if suspension::suspends_grants(key.server()) {
        return;
    }
    // Each batch leaves fewer sessions without a share, so this does not begin forever.
    with_record(key, |state, record| state.locks.begin_return(record));
    return_next(key, step);
}

/// Returns the next batch of shares of a lock to their sessions, if a return has begun. After the last batch, the lock is granted
/// to the waiters for which it has capacity.
pub fn return_next(key: &mut Key<'_, '_>, step: &mut Step) {
    let batch = with_record(key, |state, record| state.locks.next_to_return(record));
    let Some(ShareBatch { tokens, next, .. }) = batch else { return };
    for token in &tokens {
        if !return_to(key, token, step.now) {
            end_if_removed(key, token, step.now);
        }
    }
    step.spend(tokens.len());
    if next.is_some() {
        return with_record(key, |state, record| state.locks.end_batch(record));
    }
    reviews::schedule_if_waiting(key, step.now);
}

/// Returns the share of a token to its session before its turn, if the return of the shares has not reached it.
pub fn return_early(key: &mut Key<'_, '_>, token: StringRef<'_>, now: UnixMs) {
    let is_due = with_record(key, |state, record| state.locks.is_to_return(record, Some(token.bytes())));
    if is_due && share_key::view(key, now).is_some() && !suspension::suspends_grants(key.server()) {
        return_to(key, token.bytes(), now);
        with_record(key, |state, record| state.locks.return_in_turn(record));
    }
}

/// Returns a share to its session, if its lease has ended by itself although a connection is open, or for the rest of the grace
/// period. Returns whether it has.
fn return_to(key: &mut Key<'_, '_>, token: &[u8], now: UnixMs) -> bool {
    let expired = key.with_state(|state| expired_session(state, share_hold_key(key, token), now));
    let Some((session, lease)) = expired else { return return_for_grace(key, OwnedString::new(token).as_ref(), now) };
    renew(key, OwnedString::new(token).as_ref(), session, lease, now);
    true
}

/// Returns the shares of a lock that was free, for the rest of their grace periods. More than [`MAX_PURGED`] are not returned.
pub fn return_revoked(key: &mut Key<'_, '_>, step: &mut Step) {
    if suspension::suspends_grants(key.server()) {
        return;
    }
    let tokens: Vec<Box<[u8]>> =
        with_record(key, |state, record| state.locks.revoked_shares(record).take(MAX_PURGED).map(Box::from).collect());
    for token in &tokens {
        return_for_grace(key, OwnedString::new(token).as_ref(), step.now);
    }
    step.spend(tokens.len());
}

/// Returns the share of a disconnected holder, if its lease has ended before the server could set it to the end of the grace
/// period. Forgets the revocation of a share that does not exist any more. Returns whether the share has been returned.
pub fn return_for_grace(key: &mut Key<'_, '_>, token: StringRef<'_>, now: UnixMs) -> bool {
    let is_held = share_key::end_of(key, token).is_some_and(|end| !end.has_expired(now));
    let end = with_record(key, |state, record| {
        let id = state.locks.revocation_of(record, Some(token.bytes())).filter(|_| !is_held)?;
        let end = state.locks.remove_revocation(id)?.return_until(now)?;
        increment(&mut state.stats.grace_periods);
        Some(end)
    });
    if let Some(end) = end {
        effects::set_share(key, token, Some(settings::cut_end(end, now)));
    }
    end.is_some()
}

/// Ends the sessions whose shares external commands have removed, for the next batch of shares, if the lock needs a recheck.
pub fn end_removed(key: &Key<'_, '_>, step: &mut Step) {
    if key.is_empty() {
        return; // The recheck stays pending until the shares are returned or their sessions end.
    }
    let batch = with_record(key, |state, record| state.locks.next_to_recheck(record));
    let Some(ShareBatch { tokens, next, .. }) = batch else { return };
    tokens.iter().for_each(|token| end_if_removed(key, token, step.now));
    step.spend(tokens.len());
    if next.is_some() {
        with_record(key, |state, record| state.locks.end_batch(record));
    } else if share_key::view(key, step.now).is_some_and(|view| view.outlives_key()) {
        // The next renewal sets the key's expiry time to the latest end of a share.
        with_record(key, |state, record| state.locks.renew_one_share(record));
    }
}

/// Ends the session of a share if its member does not exist any more.
fn end_if_removed(key: &Key<'_, '_>, token: &[u8], now: UnixMs) {
    let hold_key = share_hold_key(key, token);
    if share_key::end_of(key, OwnedString::new(token).as_ref()).is_some() {
        key.with_state(|state| state.locks.keep_renewal(hold_key, now));
    } else {
        key.with_state(|state| state.locks.end_session(hold_key));
    }
}

/// Ends the sessions of all shares of a lock.
pub fn end_sessions(key: &Key<'_, '_>) {
    with_record(key, |state, record| state.locks.end_shares(record));
}

/// Returns the session of a share, and its lease, if that has ended by itself although a connection is open.
fn expired_session(state: &mut State, hold_key: HoldKey<'_>, now: UnixMs) -> Option<(HoldId, Lease)> {
    let id = state.locks.find_session(hold_key)?;
    state.locks.client_of(id)?;
    state.locks.fit_lease(id, settings::longest_lease());
    state.locks.session(id).filter(|session| session.has_expired(now)).map(|session| (id, session.lease))
}

fn renew(key: &mut Key<'_, '_>, token: StringRef<'_>, id: HoldId, lease: Lease, now: UnixMs) {
    let end = lease.share_end_from(now);
    debug_assert!(end > now || end == LATEST_SHARE_END, "the lease ends in the future");
    effects::set_share(key, token, Some(end));
    key.with_state(|state| state.locks.renewed(id, Some(end), now));
}
