//! What becomes of the shares of a lock by themselves: they are removed when their time has passed, or given back to their
//! sessions.

use crate::core::{HoldKey, Lease, QueueId, SessionId, ShareBatch, UnixMs};
use crate::host::background::suspension;
use crate::host::granting::reviews;
use crate::host::keys::effects;
use crate::host::keys::lock_handles::share_hold_key;
use crate::host::keys::share_key::{self, ShareView};
use crate::host::settings;
use crate::host::state::{self, Key, State};
use crate::server::{OwnedString, StringRef, ValueType};

/// The number of expired members of a shared lock that are removed, or renewed by their sessions, in one step.
const MAX_REMOVED: usize = 1000;

/// Returns whether there are members of a shared lock to remove, or somebody in line for whom it has room.
pub fn has_work(key: &Key<'_, '_>, queue: QueueId, now: UnixMs) -> bool {
    share_key::view(key, now).is_some_and(|view| view.needs_purge()) || reviews::has_capacity_for_first(key, queue, now)
}

/// Removes the members of a shared lock whose time has passed, and lets the key end with its last share. Shares with an open
/// session are renewed instead.
pub fn purge_expired(key: &mut Key<'_, '_>, now: UnixMs) {
    if suspension::suspends_grant() {
        return; // Those with a session keep their turn, and what has passed does not count.
    }
    let Some(view) = share_key::view(key, now).filter(|view| view.needs_purge() || view.now != now) else { return };
    if view.now != now && !lives_on(key, now) {
        return; // The key would expire if it were signalled. What has passed does not count, and goes later.
    }
    if !view.earliest.has_expired(now) {
        return effects::fit_expiry_to_last_share(key);
    }
    let mut seen = 0_usize;
    while let Some(token) = share_key::first_expired(key, now) {
        if seen == MAX_REMOVED {
            begin_return(key); // Nobody is let in before those with sessions.
            break;
        }
        seen = seen.saturating_add(1);
        let hold_key = share_hold_key(key, token.as_ref().bytes());
        let session = state::with(|state| expired_session(state, hold_key, now));
        if let Some((session, lease)) = session {
            renew(key, token.as_ref(), session, lease, now);
        } else {
            state::with(|state| state.sessions.end(hold_key));
            effects::remove_share(key, token.as_ref(), now);
        }
    }
    state::with(|state| state.spend(seen));
    reviews::schedule_if_waiting(key, now);
}

/// Has the sessions of a lock's shares given back what they have lost by the end of their leases, if that is not under way.
fn begin_return(key: &Key<'_, '_>) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|State { sessions, .. }| {
        if sessions.has_shares(db, name) && !sessions.is_returning(db, name) {
            sessions.begin_return(db, name);
        }
    });
}

/// Gives the shares of a key that should have expired, and is still there because the server's time stands still, back to
/// their sessions. Returns whether it lives on by them.
#[cold]
fn lives_on(key: &mut Key<'_, '_>, now: UnixMs) -> bool {
    begin_return(key);
    return_next(key, now);
    key.expiry().is_none_or(|end| end >= now)
}

/// Gives the shares of a lock that is free back to their sessions, whose leases have ended although a connection is open.
/// The other sessions end: their shares were taken away.
pub fn return_to_sessions(key: &mut Key<'_, '_>, now: UnixMs) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    if state::with(|state| state.sessions.needs_recheck(db, name)) {
        return end_sessions(key); // Which of them were taken away cannot be known any more.
    }
    if suspension::suspends_grant() {
        return;
    }
    state::with(|state| state.sessions.begin_return(db, name));
    return_next(key, now);
}

/// Gives the next shares of a lock back to their sessions, as far as they are being given back. When all are, those in line
/// for whom there is room are served.
pub fn return_next(key: &mut Key<'_, '_>, now: UnixMs) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    let Some(ShareBatch { tokens, next, .. }) = state::with(|state| state.sessions.next_to_return(db, name)) else {
        return;
    };
    for token in &tokens {
        if !return_to(key, token, now) {
            end_if_removed(key, token, now);
        }
    }
    state::with(|state| {
        state.spend(tokens.len());
        state.had_batch |= next.is_some();
    });
    if next.is_some() && key.is_empty() {
        return end_sessions(key); // It did not end with their leases: others have taken it away.
    }
    reviews::schedule_if_waiting(key, now);
}

/// Gives the share of a token, which may not have been given back yet, back to its session.
pub fn return_early(key: &mut Key<'_, '_>, token: StringRef<'_>, now: UnixMs) {
    if !state::with(|state| state.sessions.is_returning_any()) || key.value_type() != ValueType::SortedSet {
        return;
    }
    let is_due = state::with(|state| state.sessions.is_to_return(share_hold_key(key, token.bytes())));
    if is_due && !suspension::suspends_grant() {
        return_to(key, token.bytes(), now);
        let (db, name) = (key.ctx().db(), key.name().bytes());
        state::with(|state| state.sessions.return_in_turn(db, name));
    }
}

/// Gives a share back to its session, if its lease has ended by itself although a connection is open. Returns whether it has.
fn return_to(key: &mut Key<'_, '_>, token: &[u8], now: UnixMs) -> bool {
    let expired = state::with(|state| expired_session(state, share_hold_key(key, token), now));
    if let Some((session, lease)) = expired {
        renew(key, OwnedString::new(token).as_ref(), session, lease, now);
    }
    expired.is_some()
}

/// Ends the sessions of those shares of a lock that others have removed, if others have changed it: of the next so many
/// shares.
pub fn end_removed(key: &Key<'_, '_>, now: UnixMs) {
    if key.is_empty() {
        return; // The doubt stays until its shares are given back, or not.
    }
    let (db, name) = (key.ctx().db(), key.name().bytes());
    let Some(ShareBatch { tokens, next, .. }) = state::with(|state| state.sessions.next_to_recheck(db, name)) else {
        return;
    };
    tokens.iter().for_each(|token| end_if_removed(key, token, now));
    state::with(|state| {
        state.spend(tokens.len());
        state.had_batch |= next.is_some();
    });
    if next.is_none() && share_key::view(key, now).is_some_and(|view| ShareView::outlives_key(&view)) {
        // The next renewal lets the key live on.
        state::with(|state| state.sessions.renew_one_share(db, name));
    }
}

/// Ends the session of a share that is not there any more.
fn end_if_removed(key: &Key<'_, '_>, token: &[u8], now: UnixMs) {
    let is_there = share_key::end_of(key, OwnedString::new(token).as_ref()).is_some();
    state::with(|State { sessions, .. }| {
        let hold_key = share_hold_key(key, token);
        if is_there { sessions.keep_renewal(hold_key, now) } else { sessions.end(hold_key) }
    });
}

/// Ends the sessions of all shares of a lock.
pub fn end_sessions(key: &Key<'_, '_>) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|state| state.sessions.end_shares(db, name));
}

/// Returns the session of a share, and its lease, if that has ended by itself although a connection is open.
fn expired_session(state: &mut State, hold_key: HoldKey<'_>, now: UnixMs) -> Option<(SessionId, Lease)> {
    let id = state.sessions.find(hold_key)?;
    state.sessions.clients(id).next()?;
    state.sessions.fit_lease(id, settings::longest_lease());
    state.sessions.get(id).filter(|session| session.has_expired(now)).map(|session| (id, session.lock.lease))
}

fn renew(key: &mut Key<'_, '_>, token: StringRef<'_>, id: SessionId, lease: Lease, now: UnixMs) {
    let end = lease.share_end_from(now);
    effects::set_share(key, token, Some(end));
    state::with(|state| state.sessions.renewed(id, Some(end), now));
}
