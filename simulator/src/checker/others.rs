//! Events that do not come from the module: closed connections, external writes, changes of the role.

use std::rc::Rc;

use redis_lock::core::EndReason;
use redis_lock::server::{ClientId, Entry, Keyspace, ServerKind, Tag, Writer};

use super::lock_model::{Grant, LockModel, Session, Waiting};
use super::spec::{Lock, Ms};
use super::{Checker, Name, Verdict};
use crate::request::Form;

impl Checker {
    /// A blocked client is free or disconnected. It gets no further reply.
    pub(super) fn freed(&mut self, tag: Tag, now: Ms) {
        self.released.remove(&tag);
        let Some(name) = self.waiting.remove(&tag) else { return };
        let is_notified = self.asked.remove(&tag).is_none();
        let kept_until = self.limits.kept_until(now);
        self.slow_log.disconnect(tag, now);
        let model = self.models.entry(name).or_default();
        model.withdraw_request(tag, kept_until);
        model.close_grant(tag, is_notified, now);
    }

    /// A client has ended the wait of another one with CLIENT UNBLOCK.
    pub(super) fn unblocked(&mut self, client: ClientId, now: Ms) {
        self.unblocked.insert(client);
        let is_blocked = |request: &Waiting| request.client == client && request.channel.is_none();
        self.ended(is_blocked, EndReason::Disconnected, now);
        self.mark_unblocked(|request| request.client == client);
    }

    /// Records that these requests do not wait any more, although their replies have not come yet.
    pub(super) fn mark_unblocked(&mut self, whom: impl Fn(&Waiting) -> bool) {
        for model in self.models.values_mut() {
            let is_blocked = |request: &&mut Waiting| request.channel.is_none() && whom(request);
            // CLIENT UNBLOCK does not end a wait with NOTIFY.
            let unblocked = model.requests_mut().filter(is_blocked).map(|request| request.is_unblocked = true).count();
            // The limit of the request does not count any more. Capacity that follows from that may be granted in the next
            // iteration.
            model.lags |= unblocked > 0;
        }
    }

    /// A connection has closed.
    pub(super) fn closed(&mut self, client: ClientId, now: Ms) {
        let is_of = |request: &&Waiting| request.client == client;
        let of_model = |model: &LockModel| {
            let open = model.grants.iter().filter(|grant| grant.is_open);
            let granted = open.filter_map(|grant| grant.entry.request.as_ref());
            model.requests().chain(granted).filter(is_of).map(|request| request.tag).collect::<Vec<_>>()
        };
        let tags: Vec<Tag> = self.models.values().flat_map(of_model).collect();
        let sessions = self.models.values_mut().flat_map(|model| &mut model.sessions);
        sessions.filter(|session| session.client == client).for_each(|session| session.close(now));
        for tag in tags {
            self.freed(tag, now);
        }
        self.asker_closed(client, now);
        self.senders.retain(|_, sender| *sender != client);
    }

    /// The node has become a master or a replica. Forgets what only a master may act on.
    pub(super) fn retire(&mut self, now: Ms) {
        self.is_retiring = true;
        for model in self.models.values_mut() {
            model.end_sessions();
            model.grants.iter_mut().for_each(|grant| grant.unnotified_since = None);
            model.queue.retain(|entry| entry.request.is_some());
            model.pubsub_waiters().for_each(|request| request.abort(now));
        }
    }

    /// All keys were replaced.
    pub(super) fn reload(&mut self, keyspace: &Keyspace, now: Ms) {
        for (db, key, _) in keyspace.all() {
            self.model(&(db, Rc::clone(key)));
        }
        for ((db, key), model) in &mut self.models {
            let entry = keyspace.get(*db, key).cloned();
            let is = Lock::of(entry.as_ref(), now);
            let is_changed = model.entry != entry;
            if is_changed {
                (model.changed_at, model.is_counted) = (now, false);
                // If the same name still holds the lock, it is not visible that this is another grant.
                let is_another = |grant: &&mut Grant| !is.is_held_by(&grant.entry.who);
                model.grants.iter_mut().filter(is_another).for_each(|grant| grant.is_overwritten = true);
            }
            model.entry = entry;
            for session in &mut model.sessions {
                // The module reviews its lease immediately.
                session.renew_at = now;
                session.mark_uncertain();
            }
        }
    }

    /// An external write or an expiry has changed a key.
    pub(super) fn changed_externally(
        &mut self,
        name: &Name,
        entry: Option<&Entry>,
        writer: Writer,
        now: Ms,
    ) -> Verdict {
        let early = self.kind == ServerKind::Redis8;
        let model = self.model(name);
        let before = model.entry.take();
        model.entry = entry.cloned();
        (model.changed_at, model.is_counted) = (now, false);
        model.end_delay();
        if writer == Writer::Expiry {
            // Without regard to the time: the key existed until now.
            model.end_early(&Lock::of(before.as_ref(), Ms::MIN), now);
            let expiry = before.and_then(|entry| entry.expiry);
            if !expiry.is_some_and(|expiry| now > expiry || (early && now == expiry)) {
                return Err(format!("a key goes that has not expired: {expiry:?} at {now}"));
            }
            return Ok(());
        }
        let (was, is) = (Lock::of(before.as_ref(), now), Lock::of(entry, now));
        model.overwrite_grants(&was, &is);
        model.share_sessions_after(&was, &is, writer, now);
        let whole = |session: &&mut Session| session.who.form != Form::Share;
        let Some(session) = model.sessions.iter_mut().find(whole) else { return Ok(()) };
        // The module reviews its lease immediately.
        session.renew_at = now;
        let at_the_end = before.and_then(|entry| entry.expiry).is_some_and(|expiry| now >= expiry);
        let is_gone = is == Lock::Free && was.is_held_by(&session.who) && !at_the_end;
        match writer {
            Writer::Arrival => model.end_sessions(),
            Writer::Command if is_gone => model.end_sessions(),
            _ => session.mark_changed(writer, &was, &is),
        }
        Ok(())
    }
}
