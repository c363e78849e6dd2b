//! Renews the leases of sessions.

use super::context::Context;
use super::effect;
use super::handover;
use super::key::{Key, Mode};
use super::permission;
use super::state;
use super::text::OwnedText;
use crate::core::{LeaseEnd, Lock, Session, SessionId, UnixMs};

/// What has become of the lock of a session.
enum Fate {
    /// Held, until then.
    Kept(Option<UnixMs>),
    /// The lease ended although a connection is open.
    Free,
    /// Somebody else holds it, or the key is something else.
    Lost,
}

/// Renews one lease. A session that lost its lock ends; one whose lease ended takes the lock back.
pub fn carry_out(ctx: Context<'_>, id: SessionId, now: UnixMs) {
    let Some(session) = state::with(|state| state.sessions.get(id).cloned()) else { return };
    ctx.select_db(session.db);
    let name = OwnedText::new(ctx, &session.key);
    if matches!(fate(&session, &Key::open(ctx, name.text(), Mode::Read)), Fate::Lost) {
        return state::with(|state| state.sessions.end(session.db, &session.key));
    }
    if !permission::slot_is_ours(ctx, name.text())
        || !permission::write_is_welcome(ctx, name.text(), Some(session.kind))
    {
        let later = session.lease.retry_from(now);
        return state::with(|state| state.sessions.renew_at(id, later));
    }
    let mut key = Key::open(ctx, name.text(), Mode::Write);
    match fate(&session, &key) {
        Fate::Kept(lease_end) => renew(&mut key, id, &session, lease_end, now),
        Fate::Free => handover::serve(&mut key, now),
        Fate::Lost => handover::end_session(&key),
    }
}

fn fate(session: &Session, key: &Key<'_>) -> Fate {
    match key.read() {
        Ok(Lock::Free) => Fate::Free,
        Ok(Lock::Held(held)) if *held.owner == *session.owner && held.kind == session.kind => {
            Fate::Kept(held.lease_end.get())
        }
        _ => Fate::Lost,
    }
}

/// Lengthens the lease to its full length again. One that somebody made longer, or took away, is left as it is.
fn renew(key: &mut Key<'_>, id: SessionId, session: &Session, lease_end: Option<UnixMs>, now: UnixMs) {
    let renewed = session.lease.from_now(now);
    if lease_end.is_some_and(|end| end < renewed) {
        effect::set_lease(key, renewed);
    }
    handover::renew_later(key, id, key.expiry(), now);
}
