//! Each reply must be the one that the contract gives for the state of the lock.

use redis_lock::server::{ClientId, Reply, ServerKind, Tag};

use super::expected::Expected;
use super::listed::Listed;
use super::lock_model::{Grant, LockModel, Session, Waiting};
use super::settings::Limits;
use super::shown::Shown;
use super::spec::{Lock, Ms, Outcome, Who, number};
use super::{Checker, LAST_TOKEN, Name, Running, Verdict};
use crate::request::{Form, Request, Take, Verb, channel_of, counter_of, token_of};

impl Checker {
    /// A command has ended.
    pub(super) fn end(&mut self, running: Running, blocked: bool, now: Ms) -> Verdict {
        let model = self.model(&running.name);
        if let Some(Some(draft)) = &model.draft {
            return Err(format!("a change that was not signalled: {draft:?}"));
        }
        let lock = model.lock(now);
        // The module may not have removed the waiters that have timed out.
        let replaced = running.replaces;
        let someone_waits = model.requests().any(|it| !it.is_unblocked || Some(it.tag) == replaced);
        let is_purged = !model.has_expired(now);
        let mut come = self.outcome_in(&running, &lock, now);
        if running.reply.is_some() && !is_purged && !self.suspension.may_be() && running.request.verb != Verb::Fence {
            return Err(format!("{} leaves shares whose time has passed", running.request));
        }
        if running.reply.is_none() && matches!(lock, Lock::Shared(_)) && someone_waits && come.takes(&lock) {
            // There is capacity for the share, but there are other waiters.
            come = come.behind_others();
        }
        if running.reply.is_none() && lock == Lock::Free && someone_waits && self.must_not_publish_in(&running) {
            // The lock is granted in the next iteration.
            come = come.behind_others();
        }
        let wants_to_wait = matches!(running.request.verb, Verb::Take(Take { block: Some(_), .. }));
        let would_wait = come == Outcome::Contended && wants_to_wait;
        let regains = self.regains(&running, &lock, now).filter(|_| would_wait);
        // The module may check last whether the client can be blocked.
        if regains == Some(true) && running.may_wait() {
            come = Outcome::Refused("TRYAGAIN");
        }
        let is_contended = running.reply.is_none() && (come == Outcome::Contended || self.may_be_passed_over(&running));
        if blocked {
            return if is_contended { self.begin_wait(running, now) } else { Err(running.error("waits", &lock)) };
        }
        let expected = match running.reply {
            Some(reply) => self.after_write(&running, reply, &come)?,
            None => match self.without_write(&running, come, &lock, now) {
                Ok(expected) if regains.is_some() => Expected::OrTryAgain(Box::new(expected)),
                Err(_) if regains.is_some() => Expected::Error("TRYAGAIN"),
                expected => expected?,
            },
        };
        if let Some(tag) = running.replaces.filter(|_| !expected.may_wait()) {
            return Err(format!("request {tag} is replaced by {}, which does not wait", running.request));
        }
        let expected = self.withdrawn(&running, expected);
        self.replies.insert(running.tag, expected);
        Ok(())
    }

    /// Returns the reply to a command that has changed the lock or drawn a token.
    fn after_write(&self, running: &Running, reply: i64, come: &Outcome) -> Result<Expected, String> {
        if let (Outcome::Refused(code), Verb::Fence) = (come, running.request.verb) {
            return Err(format!("{} draws a token, and {code} is due", running.request));
        }
        self.check_sessions(running)?;
        Ok(Expected::Integer(reply))
    }

    /// Returns the reply to a command that has changed nothing.
    fn without_write(&mut self, running: &Running, come: Outcome, lock: &Lock, now: Ms) -> Result<Expected, String> {
        let Running { name, request, client, .. } = running;
        let may_be_full = self.may_refuse_session(running);
        Ok(match come {
            Outcome::Done { after, reply, .. } if after == *lock => {
                Expected::Confirmed { name: name.clone(), client: *client, reply, or_full: may_be_full }
            }
            Outcome::Done { .. } if self.may_be_passed_over(running) => {
                self.contended(running, may_be_full, lock, now)?
            }
            Outcome::Done { .. } if may_be_full => Expected::Error("SESSIONFULL"),
            Outcome::Done { after, .. } => {
                return Err(running.error(&format!("should have made {after:?}"), lock));
            }
            Outcome::Contended => self.contended(running, may_be_full, lock, now)?,
            // The words may also be invalid for another reason.
            Outcome::Refused("ERR") if self.limits.lease_ms.is_some() => {
                Expected::OneOf { codes: vec!["ERR", "LEASELIMIT"], or_nil: false }
            }
            Outcome::Refused("TRYAGAIN") if may_be_full => {
                Expected::OneOf { codes: vec!["TRYAGAIN", "SESSIONFULL"], or_nil: false }
            }
            Outcome::Refused(code) => Expected::Error(code),
            Outcome::Inspected if matches!(request.verb, Verb::Fence) => self.undrawn(running, now)?,
            Outcome::Inspected if matches!(request.verb, Verb::Queues { .. }) => {
                Expected::Listed(Listed::of(&self.models, name.0, &request.verb, now))
            }
            Outcome::Inspected => {
                let client = |session: &Session| {
                    let is_kept = !session.is_closed() && self.keeps_session(name, &session.who);
                    is_kept.then_some(session.client)
                };
                let model = self.models.get(name);
                let shown = model.map(|model| Shown::of(model, &request.verb, client, self.suspension, now));
                shown.map_or(Expected::Anything, Expected::Shown)
            }
        })
    }

    /// Returns whether the batch of a lock may have ended before all waiters were granted it, or all shares were returned to their
    /// sessions. Then a new request waits.
    fn may_be_passed_over(&self, running: &Running) -> bool {
        let has_queue = || self.models.get(&running.name).is_some_and(|model| !model.queue.is_empty());
        self.has_short_batches
            && matches!(running.request.verb, Verb::Take(_))
            && (has_queue() || self.is_returning(&running.name))
    }

    /// Returns the reply to a command that has found the lock taken, and that does not block its client.
    fn contended(&self, running: &Running, may_be_full: bool, lock: &Lock, now: Ms) -> Result<Expected, String> {
        let waiting = running.waiting(&self.limits, now);
        let channel = waiting.as_ref().and_then(|waiting| waiting.channel.as_ref());
        let has_subscriber = channel.is_none_or(|channel| self.listeners.are_there(channel));
        let is_full = self.waiting_count() >= self.limits.waiters && !self.has_place(running);
        let (may_be_long, is_long) = self.is_line_too_long(running);
        let limits =
            [(may_be_full, "SESSIONFULL"), (is_full || may_be_long, "QUEUEFULL"), (!has_subscriber, "NOSUBSCRIBER")];
        let codes: Vec<_> = limits.into_iter().filter_map(|(is_met, code)| is_met.then_some(code)).collect();
        // The module may check last whether the client can be blocked.
        let or_nil = !running.may_wait();
        let refused = (!codes.is_empty() || or_nil).then_some(Expected::OneOf { codes, or_nil });
        match (waiting.filter(|waiting| waiting.channel.is_some() && has_subscriber && !is_full && !is_long), refused) {
            (Some(request), refused) => {
                let (name, who) = (running.name.clone(), running.who());
                let (request, refused) = (Box::new(request), refused.map(Box::new));
                Ok(Expected::Waits { name, request, who, refused, replaces: running.replaces })
            }
            (None, Some(refused)) => Ok(refused),
            (None, None) => Err(running.error("does not wait", lock)),
        }
    }

    /// Returns the error to a holder that cannot draw a fencing token, because the counter is no number or is at its
    /// end.
    fn undrawn(&mut self, running: &Running, now: Ms) -> Result<Expected, String> {
        let Running { name, request, .. } = running;
        let counter = (name.0, counter_of(request.lock).into());
        let entry = self.model(&counter).entry.clone().filter(|entry| !entry.is_over(now));
        if entry.is_none() || number(entry.as_ref()).is_some_and(|last| last < LAST_TOKEN) {
            return Err(format!("{request} draws nothing"));
        }
        // A client that draws a token knows that it is the holder.
        let identity = token_of(request.identity);
        self.model(name)
            .grants
            .iter_mut()
            .filter(|grant| grant.entry.who.name == identity)
            .for_each(Grant::mark_notified);
        Ok(Expected::Error("ERR"))
    }

    /// A command waits for the lock.
    fn begin_wait(&mut self, running: Running, now: Ms) -> Verdict {
        let Running { tag, name, request, .. } = &running;
        let limit = self.limits.waiters;
        let waiting = running.waiting(&self.limits, now).filter(|waiting| waiting.channel.is_none());
        let has_capacity = self.waiting_count() < limit || self.has_place(&running);
        let may_wait = running.may_wait() && has_capacity && !self.is_line_too_long(&running).1;
        let Some(waiting) = waiting.filter(|_| may_wait) else {
            return Err(format!("{request} waits, and must not: {limit} may wait"));
        };
        self.join(name, running.who(), waiting, running.replaces, now)?;
        self.waiting.insert(*tag, name.clone());
        self.check_sessions(&running)
    }

    /// Returns whether the request takes the place of a request that waits.
    fn has_place(&self, running: &Running) -> bool {
        let model = self.models.get(&running.name);
        model.and_then(|model| model.place_of(&running.who().name)).is_some_and(|entry| entry.request.is_some())
    }

    /// RELEASE withdraws the waiter of its token.
    fn withdrawn(
        &mut self,
        Running { name, request, withdrew, may_have_waited, .. }: &Running,
        expected: Expected,
    ) -> Expected {
        if !matches!(request.verb, Verb::Release { .. }) {
            return expected;
        }
        let code = match expected {
            Expected::Integer(0) => None,
            Expected::Error(code @ ("NOTHELD" | "NOTOWNER" | "WRONGTYPE")) => Some(code),
            other => return other,
        };
        let token = token_of(request.identity);
        let model = self.model(name);
        if matches!(code, Some("NOTHELD" | "NOTOWNER")) {
            // It is not returned to the session, either, unless an inner hold was released.
            model.sessions.retain(|session| session.who.name != token || session.holds > 1);
        }
        let entry = model.withdraw(&token);
        let waited = *withdrew || entry.is_some();
        self.release(name, &token, entry.and_then(|entry| entry.request));
        match code {
            None => expected,
            Some(_) if waited => Expected::Nil,
            Some(code) if *may_have_waited => Expected::OneOf { codes: vec![code], or_nil: true },
            Some(code) => Expected::Error(code),
        }
    }

    /// The waiter of a withdrawn entry is due a nil reply or a message.
    pub(super) fn release(&mut self, name: &Name, token: &[u8], withdrawn: Option<Waiting>) {
        let Some(request) = withdrawn else { return };
        self.slow_log.withdraw(request.tag, self.now);
        if request.channel.is_some() {
            self.expect_message(b"withdrawn", name, token, request);
        } else {
            self.waiting.remove(&request.tag);
            self.released.insert(request.tag, "");
        }
    }

    /// The holder got a reply that confirms its hold. The key has not changed.
    pub(super) fn confirmed(&mut self, name: &Name, client: ClientId, request: &Request, reply: i64, now: Ms) {
        let identity = token_of(request.identity);
        let model = self.model(name);
        model.grants.iter_mut().filter(|grant| grant.entry.who.name == identity).for_each(Grant::mark_notified);
        match &request.verb {
            Verb::Take(take) => {
                if let Some(terms) = take.terms() {
                    model.begin_session(Who { form: take.form, name: identity }, reply, terms, client, now);
                }
            }
            Verb::Extend { .. } => {
                if let Some(session) = model.sessions.iter_mut().find(|session| session.who.name == identity) {
                    session.extend(reply, now);
                }
            }
            _ => {}
        }
    }

    /// A reply was made.
    pub(super) fn replied(&mut self, tag: Tag, reply: &Reply, now: Ms) -> Verdict {
        if *reply == Reply::Status("QUEUED") {
            return Ok(());
        }
        if let Some(expected) = self.replies.remove(&tag) {
            let request = self.asked.remove(&tag);
            if !expected.is(reply) {
                let said = request.as_ref().map(Request::to_string).unwrap_or_default();
                return Err(format!("{said} is answered {reply:?}"));
            }
            let expected = match (expected, reply) {
                (Expected::OrTryAgain(_), Reply::Error(_)) => return Ok(()),
                (Expected::OrTryAgain(expected), _) => *expected,
                (expected, _) => expected,
            };
            match (expected, request, reply) {
                (Expected::Confirmed { name, client, .. }, Some(request), Reply::Integer(value)) => {
                    self.confirmed(&name, client, &request, *value, now);
                }
                (Expected::Waits { name, request, who, replaces, .. }, _, Reply::Status(_)) => {
                    return self.join(&name, who, *request, replaces, now);
                }
                (Expected::Waits { replaces: Some(tag), .. }, ..) => {
                    return Err(format!("request {tag} is replaced by one that does not wait"));
                }
                _ => {}
            }
            return Ok(());
        }
        if let Some(code) = self.released.remove(&tag) {
            self.asked.remove(&tag);
            // The server may reply to it instead of the module, even then.
            let is_due = match reply {
                Reply::Nil => code.is_empty(),
                Reply::Error(text) => !text.starts_with("REPLACED") || code == "REPLACED",
                _ => false,
            };
            return if is_due { Ok(()) } else { Err(format!("request {tag} was let go and is answered {reply:?}")) };
        }
        let Some(name) = self.waiting.get(&tag).cloned() else {
            // The server has refused it, or it got its reply inside a script.
            let refused = matches!(reply, Reply::Error(_));
            let known = self.asked.remove(&tag).is_some();
            return if refused || !known { Ok(()) } else { Err(format!("{reply:?} out of nowhere")) };
        };
        self.waiter_replied(&name, tag, reply, now)
    }

    pub(super) fn waiter_replied(&mut self, name: &Name, tag: Tag, reply: &Reply, now: Ms) -> Verdict {
        let kept_until = self.limits.kept_until(now);
        let unblocked = &self.unblocked;
        let releasing = self
            .running
            .as_mut()
            .filter(|running| matches!(running.request.verb, Verb::Release { .. }) && running.name == *name);
        let model = self.models.entry(name.clone()).or_default();
        let grant = model.grants.iter_mut().find(|grant| grant.is_open_for(tag));
        match (grant, reply) {
            (Some(grant), Reply::Integer(1)) => grant.is_notified = true,
            // The server has replied instead of the module. Valkey logs that only when it frees the client.
            (Some(_), Reply::Error(_)) => {
                if !matches!(self.kind, ServerKind::Valkey8 | ServerKind::Valkey9) {
                    self.freed(tag, now);
                }
                return Ok(());
            }
            (None, Reply::Nil) => {
                let who = model.queue_entry_of(tag).map(|entry| entry.who.name.clone());
                let Some(request) = model.withdraw_request(tag, kept_until) else {
                    return Err("nil for a request that does not wait".to_owned());
                };
                let releasing = releasing.filter(|running| Some(token_of(running.request.identity)) == who);
                let is_late_enough = request.deadline.is_some_and(|deadline| now > deadline);
                if let Some(releasing) = releasing {
                    releasing.withdrew = true;
                } else if !is_late_enough && !unblocked.contains(&request.client) {
                    return Err(format!("nil before the time is up: {:?} at {now}", request.deadline));
                }
                self.waiting.remove(&tag);
            }
            (None, Reply::Error(text)) if !text.starts_with("REPLACED") => {
                self.slow_log.disconnect(tag, now);
                model.withdraw_request(tag, kept_until);
                self.waiting.remove(&tag);
            }
            (grant, reply) => {
                return Err(format!("a waiter is answered {reply:?}, granted: {}", grant.is_some()));
            }
        }
        self.asked.remove(&tag);
        Ok(())
    }
}

impl Running {
    /// Returns whether the request waits if it cannot get the lock.
    pub(super) fn may_wait(&self) -> bool {
        let waits = |take: Take| take.block.is_some() && (take.notify.is_some() || !self.denies_blocking);
        matches!(self.request.verb, Verb::Take(take) if waits(take))
    }

    /// Returns whether the request may take the place of the waiter of this token.
    pub(super) fn replaces_in(&self, model: &LockModel, token: &[u8]) -> bool {
        self.may_wait() && token_of(self.request.identity) == token && model.place_of(token).is_some()
    }

    /// Returns the channel on which the end of its wait is published.
    pub(super) fn channel(&self) -> Option<Vec<u8>> {
        if let Verb::Take(take) = self.request.verb { take.notify.map(channel_of) } else { None }
    }

    /// Returns the claim of the request.
    pub(super) fn who(&self) -> Who {
        let form = if let Verb::Take(take) = self.request.verb { take.form } else { Form::Mutex };
        Who { form, name: token_of(self.request.identity) }
    }

    /// Returns the waiter that the request becomes.
    fn waiting(&self, limits: &Limits, now: Ms) -> Option<Waiting> {
        let Verb::Take(take @ Take { lease, limit, block: Some(block), notify, .. }) = self.request.verb else {
            return None;
        };
        Some(Waiting {
            tag: self.tag,
            client: self.client,
            deadline: limits.deadline(block, now),
            lease,
            limit,
            session: take.terms(),
            is_unblocked: false,
            channel: notify.map(channel_of),
            may_be_aborted: false,
            aborted_since: None,
        })
    }

    fn error(&self, what: &str, lock: &Lock) -> String {
        format!("{} {what}, and the lock is {lock:?}", self.request)
    }
}
