//! To whom a lock goes that has come free: to the session that lost it, else to the first in line, in the same step.

use super::blocked;
use super::effect;
use super::key::Key;
use super::remembered::Remembered;
use super::state;
use super::takeback;
use super::text::OwnedText;
use crate::core::{Cause, Kind, Lock, QueueId, Session, SessionId, UnixMs};

/// Sees to what is overdue for a lock, before a request is heard: a holder that is gone loses it, and a lock that has
/// come free goes to whom it is due. Nobody overtakes, and nobody is told that he holds what is about to be taken back.
/// Answers what is remembered of the lock then.
#[inline(always)]
pub fn settle(key: &mut Key<'_>, now: UnixMs) -> Option<Remembered> {
    let remembered = Remembered::of(key)?;
    settle_remembered(key, remembered, now)
}

fn settle_remembered(key: &mut Key<'_>, mut remembered: Remembered, now: UnixMs) -> Option<Remembered> {
    if let Some(take_back) = remembered.take_back {
        takeback::carry_out_on(key, take_back, now);
        remembered = Remembered::of(key)?;
    }
    if key.is_empty() {
        give(key, remembered, now);
        return Remembered::of(key);
    }
    if remembered.session.is_some_and(|session| !is_of_session(key, session)) {
        end_session(key);
        return Remembered::of(key);
    }
    Some(remembered)
}

/// Whether the key, which is not empty, still holds the lock of this session. Somebody may have written over it.
fn is_of_session(key: &Key<'_>, id: SessionId) -> bool {
    let lock = key.read();
    state::with(|state| {
        let session = state.sessions.get(id);
        session.is_some_and(|session| matches!(&lock, Ok(Lock::Held(held)) if session.is_of(held)))
    })
}

/// Gives a lock that is free to whom it is due, if to anybody.
pub fn serve(key: &mut Key<'_>, now: UnixMs) {
    if let Some(remembered) = Remembered::of(key) {
        give(key, remembered, now);
    }
}

fn give(key: &mut Key<'_>, remembered: Remembered, now: UnixMs) {
    if let Some(session) = remembered.session {
        if state::with(|state| state.sessions.get(session).is_some_and(|session| session.has_lapsed(now))) {
            return give_back(key, session, now);
        }
        end_session(key); // The lock was taken away, and no event has told of it yet.
    }
    if let Some(queue) = remembered.queue {
        let cause = state::with(|state| state.room.cause_of(queue));
        hand_over(key, queue, cause, now);
    }
}

/// Frees a lock that is held: the first in line takes it over, or the key is deleted.
#[inline(always)]
pub fn release(key: &mut Key<'_>, remembered: Option<Remembered>, cause: Cause, now: UnixMs) {
    let handed = remembered.is_some_and(|Remembered { queue, session, .. }| {
        if session.is_some() {
            end_session(key);
        }
        queue.is_some_and(|queue| hand_over(key, queue, cause, now))
    });
    if !handed {
        effect::free(key);
    }
}

/// Ends the session of a lock, if it has one.
pub fn end_session(key: &Key<'_>) {
    let (db, name) = (key.ctx.db(), key.name.bytes());
    state::with(|state| state.sessions.end(db, name));
}

/// Gives the lock to the first in line, whoever the key still names, and answers its clients. `false`: nobody waits
/// after all, and nothing was done.
fn hand_over(key: &mut Key<'_>, queue: QueueId, cause: Cause, now: UnixMs) -> bool {
    let Some(grant) = state::with(|state| state.room.serve_first(queue)) else { return false };
    let lease_end = grant.lease(blocked::asks_for_session(&grant)).map(|lease| lease.from_now(now));
    effect::grant(key, grant.claim.kind, OwnedText::new(key.ctx, &grant.claim.owner).text(), lease_end);
    state::with(|state| {
        state.stats.handed_over(cause, now.saturating_sub(grant.since));
        state.room.review_after(queue, lease_end);
        state.sessions.end(grant.db, &grant.key);
    });
    blocked::answer_grant(grant, lease_end, now);
    true
}

/// Gives the lock back to a session whose lease ended although a connection is open.
fn give_back(key: &mut Key<'_>, id: SessionId, now: UnixMs) {
    let Some(session) = state::with(|state| state.sessions.get(id).cloned()) else { return };
    let Session { kind, owner, holds, lease, .. } = session;
    let owner = OwnedText::new(key.ctx, &owner);
    let lease_end = Some(lease.from_now(now));
    match kind {
        Kind::Mutex => effect::grant(key, kind, owner.text(), lease_end),
        Kind::Reentrant => effect::set_holds(key, owner.text(), holds, lease_end),
    }
    renew_later(key, id, lease_end, now);
}

/// The session goes on with a lease that ends then: it is renewed in time, and who waits is served should it end.
pub fn renew_later(key: &Key<'_>, id: SessionId, lease_end: Option<UnixMs>, now: UnixMs) {
    let queue = Remembered::of(key).and_then(|remembered| remembered.queue);
    state::with(|state| {
        state.sessions.renew_later(id, now);
        state.sessions.lease_ends(id, lease_end);
        if let Some(queue) = queue {
            state.room.review_after(queue, lease_end);
        }
    });
}
