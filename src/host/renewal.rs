//! Renews the leases of sessions.

use super::effect;
use super::handover;
use super::lock_key;
use super::permission;
use super::state::{self, Context, Key, State};
use crate::core::{Duty, LeaseEnd, Lock, Session, SessionId, UnixMs};
use crate::server::{Mode, OwnedString, Slot};

/// What has become of the lock of a session.
enum Fate {
    /// Held, until then.
    Kept(Option<UnixMs>),
    /// Gone: the lease ended although a connection is open, or the lock was taken away.
    Free,
    /// Somebody else holds it, or the key is something else.
    Lost,
}

/// Does what is due for a session. One that lost its lock ends; one whose lease ended takes the lock back.
pub fn carry_out(ctx: &mut Context<'_>, duty: Duty, now: UnixMs) {
    let (Duty::Renew(id) | Duty::Look(id)) = duty;
    let Some(session) = state::with(|State { sessions, .. }| {
        // Whose connections are all closed is about to lose the lock.
        let is_open = sessions.clients(id).next().is_some();
        sessions.get(id).filter(|_| is_open).cloned()
    }) else {
        return;
    };
    ctx.select_db(session.holding.db);
    let name = OwnedString::new(&session.holding.key);
    let found = fate(&session, &ctx.open(name.as_ref(), Mode::Read));
    match found {
        Fate::Kept(lease_end) => {
            state::with(|state| state.sessions.lease_ends(id, lease_end));
            if duty == Duty::Look(id) {
                return;
            }
        }
        Fate::Lost => return end(&session),
        Fate::Free => {}
    }
    let slot = ctx.slot_of(name.as_ref());
    if slot == Slot::Elsewhere {
        return end(&session);
    }
    if slot != Slot::Ours || !permission::write_is_welcome(ctx, name.as_ref(), session.holding.kind) {
        let later = session.holding.lease.retry_from(now);
        return state::with(|state| state.sessions.renew_at(id, later));
    }
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    match fate(&session, &key) {
        Fate::Kept(lease_end) => renew(&mut key, id, &session, lease_end, now),
        Fate::Free => handover::serve(&mut key, now),
        Fate::Lost => end(&session),
    }
}

fn end(session: &Session) {
    state::with(|state| state.sessions.end(session.holding.db, &session.holding.key));
}

fn fate(session: &Session, key: &Key<'_, '_>) -> Fate {
    match lock_key::read(key) {
        Ok(Lock::Free) => Fate::Free,
        Ok(Lock::Held(held)) if session.is_of(&held) => Fate::Kept(held.lease_end.get()),
        _ => Fate::Lost,
    }
}

/// Lengthens the lease to its full length again. One that somebody made longer, or took away, is left as it is.
fn renew(key: &mut Key<'_, '_>, id: SessionId, session: &Session, lease_end: Option<UnixMs>, now: UnixMs) {
    let renewed = session.holding.lease.from_now(now);
    if lease_end.is_some_and(|end| end < renewed) {
        effect::set_lease(key, renewed);
    }
    handover::renew_later(key, id, key.expiry(), now);
}
