//! Waiters with NOTIFY: each gets one message, in time, and the message of a grant comes before the lock is granted.

use std::collections::{BTreeSet, HashMap};

use redis_lock::server::{ClientId, Reply, ServerKind, Tag, slot_of};

use super::lock_model::{LockModel, Waiting};
use super::spec::{Held, Ms, Who};
use super::{Checker, Name, Running, Verdict};
use crate::request::{Verb, token_of};

/// The subscribers of each channel.
#[derive(Default)]
pub(super) struct Listeners(HashMap<Vec<u8>, BTreeSet<ClientId>>);

/// A grant that a message has announced. The write to the key must follow.
pub(super) struct Announced {
    name: Name,
    token: Vec<u8>,
    channel: Vec<u8>,
    lease_end: Ms,
}

/// The end of a wait of which a message is due: RELEASE has withdrawn the waiter, or a later request has replaced it.
pub(super) struct Withdrawn {
    event: &'static [u8],
    name: Name,
    token: Vec<u8>,
    channel: Vec<u8>,
    /// Whether an event-loop iteration has ended since.
    is_old: bool,
}

/// The parts of a published message.
struct Message<'m> {
    event: &'m [u8],
    lease_end: Ms,
    name: Name,
    token: &'m [u8],
}

impl Listeners {
    /// A client has received a reply or a push, which may be about its subscriptions.
    pub fn record(&mut self, client: ClientId, received: &Reply) {
        let (Reply::Array(parts) | Reply::Push(parts)) = received else { return };
        let [Reply::Bytes(kind), Reply::Bytes(channel), _] = parts.as_slice() else { return };
        let subscribers = self.0.entry(channel.clone()).or_default();
        match kind.as_slice() {
            b"ssubscribe" => _ = subscribers.insert(client),
            b"sunsubscribe" => _ = subscribers.remove(&client),
            _ => {}
        }
    }

    /// A connection has closed.
    pub fn remove(&mut self, client: ClientId) {
        self.0.values_mut().for_each(|subscribers| _ = subscribers.remove(&client));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether a channel has subscribers.
    pub fn are_there(&self, channel: &[u8]) -> bool {
        self.0.get(channel).is_some_and(|subscribers| !subscribers.is_empty())
    }
}

impl Withdrawn {
    fn is_about(&self, name: &Name, token: &[u8], channel: &[u8]) -> bool {
        self.name == *name && self.token == token && self.channel == channel
    }
}

impl Announced {
    fn is_of(&self, name: &Name, who: &Who) -> bool {
        self.name == *name && self.token == who.name
    }
}

impl<'m> Message<'m> {
    fn read(message: &'m [u8]) -> Result<Self, String> {
        let read =
            Self::parse(message).ok_or_else(|| format!("no message is {:?}", message.escape_ascii().to_string()))?;
        match read {
            Self { lease_end, event, .. } if event != b"granted" && lease_end != 0 => {
                Err(format!("a lease that ends at {lease_end} without a grant"))
            }
            _ => Ok(read),
        }
    }

    fn parse(message: &'m [u8]) -> Option<Self> {
        let mut words = message.splitn(5, |&byte| byte == b' ');
        let (event, lease_end, db, token) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<Ms>().ok();
        let name = (number(db)? as i32, words.next()?.into());
        Some(Self { event, lease_end: number(lease_end)?, name, token })
    }
}

impl Checker {
    /// A message was published.
    pub(super) fn published(&mut self, channel: &[u8], message: &[u8], reached: usize, now: Ms) -> Verdict {
        let Message { event, lease_end, ref name, token } = Message::read(message)?;
        let is_moving = self.lost_slots.contains(&slot_of(&name.1));
        // The module may revoke a grant that no client knows of. Its holder does not delay other waiters of the same name.
        let forfeited = if event == b"granted" { self.after_forfeit(name, token, now) } else { None };
        let model = self.models.entry(name.clone()).or_default();
        let waits = |request: &&Waiting| request.channel.as_deref() == Some(channel);
        let entry = model.place_of(token);
        let request = entry.and_then(|entry| entry.request.as_ref()).filter(waits);
        let kept_until = self.limits.kept_until(now);
        let running = self.running.as_mut().filter(|running| running.name == *name);
        let (releasing, taking) = match running {
            Some(running) if matches!(running.request.verb, Verb::Release { .. }) => (Some(running), None),
            Some(running) => (None, Some(running).filter(|running| running.replaces_in(model, token))),
            None => (None, None),
        };
        let released = releasing.as_ref().map(|running| token_of(running.request.identity));
        let (request, kept_until) = match event {
            b"granted" => {
                // The owner that releases the lock does not wait for it any more.
                let model = forfeited.as_ref().unwrap_or(model);
                let is_next = |who: &Who| model.may_be_next_but_for(released.as_deref(), who, now);
                let next = request.filter(|_| entry.is_some_and(|entry| is_next(&entry.who)));
                if reached > 0 && next.is_some() {
                    let (name, token, channel) = (name.clone(), token.to_vec(), channel.to_vec());
                    self.announced.push(Announced { name, token, channel, lease_end });
                    return Ok(());
                }
                (next, kept_until)
            }
            b"timeout" => (request.filter(|request| request.is_over(now)), kept_until),
            b"withdrawn" | b"replaced" => {
                let is_it = |it: &Withdrawn| it.event == event && it.is_about(name, token, channel);
                if let Some(index) = self.withdrawn.iter().position(is_it) {
                    self.withdrawn.remove(index);
                    return Ok(());
                }
                match (event, request, releasing, taking) {
                    // The new request takes the turn at the end of the command.
                    (b"replaced", Some(request), _, Some(running)) if running.channel() != request.channel => {
                        running.replaces = Some(request.tag);
                        return Ok(());
                    }
                    (b"withdrawn", Some(_), Some(running), _) if released.is_some_and(|released| released == token) => {
                        running.withdrew = true;
                        (request, None)
                    }
                    _ => (None, None),
                }
            }
            b"lost" => (request.filter(|request| request.may_be_aborted || is_moving), kept_until),
            _ => (None, None),
        };
        let Some(tag) = request.map(|request| request.tag) else { return Err(Self::unfounded(event, name)) };
        model.withdraw_request(tag, kept_until);
        self.slow_log.end_by_message(tag, event, now);
        Ok(())
    }

    /// Returns the model after the module has revoked the lock, if it may, before the lock is granted to a token.
    fn after_forfeit(&self, name: &Name, token: &[u8], now: Ms) -> Option<LockModel> {
        let model = self.models.get(name)?;
        let held = model.lock(now).holder().filter(|held| model.is_forfeit(&held.who))?.clone();
        let next = model.place_of(token).map(|entry| &entry.who);
        Some(model.without(&held.who, self.turn_kept_until(name, &held.who, next, now)))
    }

    fn unfounded(event: &[u8], (db, key): &Name) -> String {
        let (event, key) = (event.escape_ascii(), key.escape_ascii());
        format!("the message {event} about {key} of database {db}, and it is not so")
    }

    /// A lock is granted to a claim. Checks that its waiter with NOTIFY got one message about that, with the right lease. Returns
    /// whether there was a message.
    pub(super) fn notified_before(&mut self, name: &Name, held: &Held) -> Result<bool, String> {
        let announced = std::mem::take(&mut self.announced);
        let (of_lock, others): (Vec<_>, Vec<_>) = announced.into_iter().partition(|it| it.is_of(name, &held.who));
        self.announced = others;
        if let Some(wrong) = of_lock.iter().find(|it| Some(it.lease_end) != held.until) {
            return Err(format!("told of a lease to {}, and it is to {:?}", wrong.lease_end, held.until));
        }
        let request = self.models.get(name).and_then(|model| model.place(&held.who)?.request.as_ref());
        if let Some(request) = request.filter(|request| request.channel.is_some()) {
            let received = of_lock.iter().filter(|it| request.channel.as_ref() == Some(&it.channel)).count();
            if received != 1 {
                return Err(format!("request {} is granted the lock, and gets {received} messages of it", request.tag));
            }
        }
        Ok(!of_lock.is_empty())
    }

    /// Returns whether a message has announced the grant that is being made.
    pub(super) fn is_announced(&self, name: &Name, who: &Who) -> bool {
        self.announced.iter().any(|it| it.is_of(name, who))
    }

    /// Checks that each announced grant was made.
    pub(super) fn check_announced(&self) -> Verdict {
        match self.announced.first() {
            Some(it) => Err(format!("{} gets the message of a grant that is not made", it.token.escape_ascii())),
            None => Ok(()),
        }
    }

    /// A request waits from now on. It takes the place of the request of the same name that waits. That one has its reply, or its
    /// message, unless both have the same channel.
    pub(super) fn join(&mut self, name: &Name, who: Who, request: Waiting, replaces: Option<Tag>, now: Ms) -> Verdict {
        self.free_capacity();
        let (tag, channel) = (request.tag, request.channel.clone());
        let replaced = self.model(name).join(who.clone(), request, now);
        self.slow_log.begin(tag, name.clone(), who.clone(), now);
        let Some(replaced) = replaced else {
            return replaces.map_or(Ok(()), |tag| Err(format!("request {tag} is replaced, and did not wait")));
        };
        self.replaced += 1;
        let others = self.model(name).still_waiting() - 1;
        self.slow_log.replace(replaced.tag, others, now);
        let is_notified = replaces == Some(replaced.tag);
        match &replaced.channel {
            None if is_notified || replaced.is_unblocked => _ = self.waiting.remove(&replaced.tag),
            Some(_) if is_notified || replaced.channel == channel => {}
            Some(_) => self.expect_message(b"replaced", name, &who.name, replaced),
            None => return Err(format!("request {} is replaced by {tag}, and is not let go", replaced.tag)),
        }
        Ok(())
    }

    /// A connection has closed, so its waiters with NOTIFY withdraw.
    pub(super) fn asker_closed(&mut self, client: ClientId, now: Ms) {
        let kept_until = self.limits.kept_until(now);
        for model in self.models.values_mut() {
            let tags: Vec<_> =
                model.pubsub_waiters().filter(|request| request.client == client).map(|it| it.tag).collect();
            for tag in tags {
                model.withdraw_request(tag, kept_until);
                self.slow_log.disconnect(tag, now);
            }
        }
    }

    /// The wait of a request has ended, and the message about that is due.
    pub(super) fn expect_message(&mut self, event: &'static [u8], name: &Name, token: &[u8], request: Waiting) {
        let channel = request.channel.unwrap_or_default();
        self.withdrawn.push(Withdrawn { event, name: name.clone(), token: token.to_vec(), channel, is_old: false });
    }

    /// Checks that a withdrawn waiter was notified in the same iteration, or in the next one where the server could not
    /// publish.
    pub(super) fn check_withdrawn(&mut self) -> Verdict {
        let may_be_late = self.kind == ServerKind::Redis70;
        if let Some(it) = self.withdrawn.iter().find(|it| it.is_old || !may_be_late) {
            let (token, event) = (it.token.escape_ascii(), it.event.escape_ascii());
            return Err(format!("the wait of {token} has ended, and the message {event} is missing"));
        }
        self.withdrawn.iter_mut().for_each(|it| it.is_old = true);
        Ok(())
    }

    /// Returns whether a message could become a part of a reply now, so that the module must not publish.
    pub(super) fn must_not_publish(&self) -> bool {
        self.running.as_ref().is_some_and(|running| self.must_not_publish_in(running))
    }

    pub(super) fn must_not_publish_in(&self, running: &Running) -> bool {
        let in_transaction = running.denies_blocking && !self.scripts.contains(&running.tag);
        self.kind == ServerKind::Redis70 && in_transaction && self.models.values().any(LockModel::has_pubsub_waiters)
    }
}

impl LockModel {
    /// Returns the waiters with NOTIFY.
    pub fn pubsub_waiters(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.requests_mut().filter(|request| request.channel.is_some())
    }

    /// Returns whether there is a waiter with NOTIFY.
    pub fn has_pubsub_waiters(&self) -> bool {
        self.requests().any(|request| request.channel.is_some())
    }
}

impl Waiting {
    /// Records that the server cannot continue the wait, and must publish that.
    pub fn abort(&mut self, now: Ms) {
        self.may_be_aborted = true;
        self.aborted_since.get_or_insert(now);
    }
}
