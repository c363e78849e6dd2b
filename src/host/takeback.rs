//! Locks that are taken from connections that are gone: a session whose last connection closed, or a grant whose answer
//! found nobody.

use std::rc::Rc;

use super::config;
use super::context::Context;
use super::handover;
use super::key::{Key, Mode};
use super::permission;
use super::pump::RETRY_MS;
use super::remembered::Remembered;
use super::state;
use super::text::OwnedText;
use crate::core::{Cause, Grant, Held, Kind, Lock, Session, UnixMs};

/// A lock to be released in the name of a holder that is gone, if it still is the holder.
pub struct TakeBack {
    db: i32,
    key: Rc<[u8]>,
    kind: Kind,
    owner: Rc<[u8]>,
    /// The grant of which no connection heard. Its turn is kept, should it come back.
    grant: Option<Grant>,
    pub due: UnixMs,
}

impl TakeBack {
    pub fn of_grant(grant: Grant) -> Self {
        let (db, key, kind, owner) = (grant.db, Rc::clone(&grant.key), grant.claim.kind, Rc::clone(&grant.claim.owner));
        Self { db, key, kind, owner, grant: Some(grant), due: UnixMs::MIN }
    }

    pub fn of_session(session: Session) -> Self {
        let Session { db, key, kind, owner, .. } = session;
        Self { db, key, kind, owner, grant: None, due: UnixMs::MIN }
    }

    /// A grant of which nobody heard has one hold; a session is given up with all of them.
    fn is_of(&self, held: &Held<'_>) -> bool {
        *held.owner == *self.owner && held.kind == self.kind && (held.holds == 1 || self.grant.is_none())
    }

    fn open<'c>(&self, ctx: Context<'c>, name: &'c OwnedText<'c>, mode: Mode) -> Option<Key<'c>> {
        let key = Key::open(ctx, **name, mode);
        let theirs = key.read().is_ok_and(|lock| matches!(lock, Lock::Held(held) if self.is_of(&held)));
        theirs.then_some(key)
    }
}

/// The next one that is due.
pub fn next(now: UnixMs) -> Option<TakeBack> {
    state::with(|state| {
        let due = state.take_backs.iter().position(|take_back| take_back.due <= now)?;
        Some(state.take_backs.swap_remove(due))
    })
}

/// Takes a lock back, or puts it off while the server does not allow it.
pub fn carry_out(ctx: Context<'_>, mut take_back: TakeBack, now: UnixMs) {
    ctx.select_db(take_back.db);
    let name = OwnedText::new(ctx, &take_back.key);
    if take_back.open(ctx, &name, Mode::Read).is_none() {
        return;
    }
    if !permission::slot_is_ours(ctx, *name) || !permission::write_is_welcome(ctx, *name, Some(take_back.kind)) {
        take_back.due = now.saturating_add(RETRY_MS);
        return state::with(|state| state.take_backs.push(take_back));
    }
    let Some(mut key) = take_back.open(ctx, &name, Mode::Write) else { return };
    if let (Some(grant), Some(until)) = (take_back.grant, config::kept_until(now)) {
        state::with(|state| state.room.restore(grant, until));
    }
    let remembered = Remembered::of(&key);
    handover::release(&mut key, remembered, Cause::Disconnect, now);
}
