//! What becomes of the shares of a lock by themselves: they are removed when their time has passed, or given back to their
//! sessions.

use super::effect;
use super::lock_handles::share_seat;
use super::recovery;
use super::reviews;
use super::settings;
use super::share_key::{self, ShareView};
use super::state::{self, Key, State};
use crate::core::{Lease, QueueId, Seat, SessionId, UnixMs};
use crate::server::{OwnedString, StringRef};

/// The number of members that are removed in one step, because their time has passed. The others do not count either.
const MOST_REMOVED: usize = 1000;

/// Returns whether there are members of a shared lock to remove, or somebody in line for whom it has room.
pub fn has_work(key: &Key<'_, '_>, queue: QueueId, now: UnixMs) -> bool {
    share_key::view(key, now).is_some_and(|view| view.is_untidy()) || reviews::has_room_for_first(key, queue, now)
}

/// Removes the members of a shared lock whose time has passed, and lets the key end with its last share. Shares with an open
/// session are renewed instead.
pub fn tidy(key: &mut Key<'_, '_>, now: UnixMs) {
    planted!(PassedSharesStay => return);
    if recovery::holds_back_grant() {
        return; // Those with a session keep their turn, and what has passed does not count.
    }
    let Some(view) = share_key::view(key, now).filter(|view| view.is_untidy() || view.now != now) else { return };
    if view.now != now && !lives_on(key, now) {
        return; // The key would expire if it were signalled. What has passed does not count, and goes later.
    }
    if !view.earliest.has_passed(now) {
        return effect::end_with_last_share(key);
    }
    let mut removed = 0_usize;
    while let Some(token) = share_key::first_passed(key, now) {
        let seat = share_seat(key, token.as_ref().bytes());
        let session = state::with(|state| lapsed_session(state, seat, now)).filter(|_| !planted!(LapsedShareIsRemoved));
        if let Some((session, lease)) = session {
            renew(key, token.as_ref(), session, lease, now);
            continue;
        }
        if removed == MOST_REMOVED {
            renew_lapsed(key, now); // They would come behind those that are still to be removed.
            break;
        }
        removed = removed.saturating_add(1);
        state::with(|state| {
            state.spend(1);
            state.sessions.end(seat);
        });
        effect::remove_share(key, token.as_ref(), now);
    }
    reviews::follow(key, now);
}

/// Gives the shares of a key that should have expired, and is still there because the server's time stands still, back to
/// their sessions. Returns whether it lives on by them.
#[cold]
fn lives_on(key: &mut Key<'_, '_>, now: UnixMs) -> bool {
    renew_lapsed(key, now);
    key.expiry().is_none_or(|end| end >= now)
}

/// Gives the shares of a lock that is free back to their sessions, whose leases have ended although a connection is open.
/// The other sessions end: their shares were taken away.
pub fn return_to_sessions(key: &mut Key<'_, '_>, now: UnixMs) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    if state::with(|state| state.sessions.take_doubt(db, name)) {
        return end_sessions(key); // Which of them were taken away cannot be known any more.
    }
    for owner in renew_lapsed(key, now) {
        state::with(|state| state.sessions.end(share_seat(key, &owner)));
    }
    reviews::follow(key, now);
}

/// Renews the shares of all sessions whose leases have ended by themselves although a connection is open. Returns the tokens
/// of the others.
fn renew_lapsed(key: &mut Key<'_, '_>, now: UnixMs) -> Vec<Box<[u8]>> {
    let mut owners = owners(key);
    owners.retain(|owner| {
        let lapsed = state::with(|state| lapsed_session(state, share_seat(key, owner), now));
        planted!(SharesStayGone => return true);
        if let Some((session, lease)) =
            lapsed.filter(|_| !recovery::holds_back_grant() || planted!(ShareReturnsInPeriod))
        {
            renew(key, OwnedString::new(owner).as_ref(), session, lease, now);
        }
        lapsed.is_none()
    });
    owners
}

/// Ends the sessions of those shares of a lock that others have removed, if others have changed it.
pub fn end_removed(key: &Key<'_, '_>, now: UnixMs) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    if key.is_empty() || !state::with(|state| state.sessions.take_doubt(db, name)) {
        return; // Of a key that is gone, the doubt stays until its shares are given back, or not.
    }
    for owner in owners(key) {
        if share_key::end_of(key, OwnedString::new(&owner).as_ref()).is_none() {
            state::with(|state| state.sessions.end(share_seat(key, &owner)));
        }
    }
    if share_key::view(key, now).is_some_and(|view| ShareView::outlives_key(&view)) {
        // The next renewal lets the key live on.
        state::with(|state| state.sessions.renew_one_share(db, name));
    }
}

/// Returns the tokens of the shares of a lock that have sessions.
fn owners(key: &Key<'_, '_>) -> Vec<Box<[u8]>> {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|State { sessions, .. }| {
        let of = |id| sessions.get(id).map(|session| session.lock.owner.clone());
        sessions.shares(db, name).filter_map(of).collect()
    })
}

/// Ends the sessions of all shares of a lock.
pub fn end_sessions(key: &Key<'_, '_>) {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|state| state.sessions.end_shares(db, name));
}

/// Returns the session of a share, and its lease, if that has ended by itself although a connection is open.
fn lapsed_session(state: &mut State, seat: Seat<'_>, now: UnixMs) -> Option<(SessionId, Lease)> {
    let id = state.sessions.find(seat)?;
    state.sessions.clients(id).next()?;
    state.sessions.raise_lease(id);
    state
        .sessions
        .get(id)
        .filter(|session| session.has_lapsed(now))
        .map(|session| (id, settings::cut(session.lock.lease)))
}

fn renew(key: &mut Key<'_, '_>, token: StringRef<'_>, id: SessionId, lease: Lease, now: UnixMs) {
    let end = lease.share_end_from(now);
    effect::set_share(key, token, Some(end));
    state::with(|state| {
        state.spend(1);
        state.sessions.renewed(id, Some(end), now);
    });
}
