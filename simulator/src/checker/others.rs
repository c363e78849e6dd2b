//! What others do to locks: connections that close, keys that somebody else changes, roles.

use std::rc::Rc;

use redis_lock::server::{ClientId, Entry, Keyspace, ServerKind, Tag, Writer};

use super::door::{Door, Grant, Session, Trust, Waiting};
use super::spec::{Lock, Ms};
use super::{Checker, Name, Verdict};
use crate::request::Form;

impl Checker {
    /// A client that was blocked is free, or gone: it is told no more than it was.
    pub(super) fn freed(&mut self, tag: Tag, now: Ms) {
        self.released.remove(&tag);
        let Some(name) = self.waiting.remove(&tag) else { return };
        let told = self.asked.remove(&tag).is_none();
        let kept_until = self.limits.kept_until(now);
        let door = self.doors.entry(name).or_default();
        door.leave(tag, kept_until);
        door.close_grant(tag, told, now);
    }

    /// Somebody has had the server let a client go.
    pub(super) fn unblocked(&mut self, client: ClientId) {
        self.unblocked.insert(client);
        self.let_go(|request| request.client == client);
    }

    /// Who waited does not wait any more, though the answer is not there yet.
    pub(super) fn let_go(&mut self, whom: impl Fn(&Waiting) -> bool) {
        for door in self.doors.values_mut() {
            let requests = door.line.iter_mut().flat_map(|place| &mut place.requests);
            // A message is not let go.
            for request in requests.filter(|request| request.channel.is_none() && whom(request)) {
                request.let_go = true;
                // Its limit counts no more, and what that makes room for may be served in the next round.
                door.lags = true;
            }
        }
    }

    /// A connection is closed.
    pub(super) fn closed(&mut self, client: ClientId, now: Ms) {
        let of_client = |requests: &[Waiting]| {
            requests.iter().filter(|request| request.client == client).map(|request| request.tag).collect::<Vec<_>>()
        };
        let of_door = |door: &Door| {
            let line = door.line.iter().flat_map(|place| of_client(&place.requests));
            line.chain(door.grants.iter().flat_map(|grant| of_client(&grant.open))).collect::<Vec<_>>()
        };
        let tags: Vec<Tag> = self.doors.values().flat_map(of_door).collect();
        for session in self.doors.values_mut().flat_map(|door| &mut door.sessions) {
            session.leave(client, now);
        }
        for tag in tags {
            self.freed(tag, now);
        }
        self.asker_closed(client, now);
        self.senders.retain(|_, sender| *sender != client);
    }

    /// The node is a master now, or a replica: what only a master may act on is forgotten.
    pub(super) fn retire(&mut self, now: Ms) {
        for door in self.doors.values_mut() {
            door.end_sessions();
            door.grants.iter_mut().for_each(|grant| grant.untold_at = None);
            door.line.retain(|place| !place.requests.is_empty());
            door.notified().for_each(|request| request.lose(now));
        }
    }

    /// The keys are others now.
    pub(super) fn reload(&mut self, keyspace: &Keyspace, now: Ms) {
        for (db, key, _) in keyspace.all() {
            self.door(&(db, Rc::clone(key)));
        }
        for ((db, key), door) in &mut self.doors {
            let entry = keyspace.get(*db, key).cloned();
            let (was, is) = (door.lock(now), Lock::of(entry.as_ref(), now));
            let is_changed = door.entry != entry;
            if is_changed {
                (door.changed_at, door.is_counted) = (now, false);
                // Where the same name holds the lock still, nobody can see that it is another grant.
                let is_another = |grant: &&mut Grant| !is.is_held_by(&grant.place.who);
                door.grants.iter_mut().filter(is_another).for_each(|grant| grant.is_overwritten = true);
            }
            door.entry = entry;
            let may_end_early = |session: &Session| session.who.form == Form::Share && is_changed;
            for session in &mut door.sessions {
                // Its lease is looked at at once.
                session.renew_at = now;
                if may_end_early(session) || was != is && !is.is_held_by(&session.who) {
                    session.doubt();
                } else {
                    session.trust = session.trust.max(Trust::Unread);
                }
            }
        }
    }

    /// Somebody else has changed a key.
    pub(super) fn changed_by_others(&mut self, name: &Name, entry: Option<&Entry>, writer: Writer, now: Ms) -> Verdict {
        let early = self.kind == ServerKind::Redis8;
        let door = self.door(name);
        let before = door.entry.take();
        door.entry = entry.cloned();
        (door.changed_at, door.is_counted) = (now, false);
        door.end_delay();
        if writer == Writer::Expiry {
            // Whatever the time: it was there a moment ago.
            door.end_early(&Lock::of(before.as_ref(), Ms::MIN), now);
            let expiry = before.and_then(|entry| entry.expiry);
            if !expiry.is_some_and(|expiry| now > expiry || (early && now == expiry)) {
                return Err(format!("a key goes that has not expired: {expiry:?} at {now}"));
            }
            return Ok(());
        }
        let (was, is) = (Lock::of(before.as_ref(), now), Lock::of(entry, now));
        door.overwrite_grants(&was, &is);
        door.share_sessions_after(before.as_ref(), &was, &is, writer, now);
        let whole = |session: &&mut Session| session.who.form != Form::Share;
        let Some(session) = door.sessions.iter_mut().find(whole) else { return Ok(()) };
        // Its lease is looked at at once.
        session.renew_at = now;
        let at_the_end = before.and_then(|entry| entry.expiry).is_some_and(|expiry| now >= expiry);
        let is_gone = is == Lock::Free && was.is_held_by(&session.who) && !at_the_end;
        match writer {
            Writer::Arrival => door.end_sessions(),
            Writer::Command if is_gone => door.end_sessions(),
            _ if is.is_held_by(&session.who) => session.trust = session.trust.max(Trust::Unread),
            _ => session.doubt(),
        }
        Ok(())
    }
}
