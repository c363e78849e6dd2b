//! Each request has the reply that the contract gives for the lock as it is.

use redis_lock::server::{ClientId, Reply, ServerKind, Tag};

use super::door::{Door, Grant, Waiting};
use super::shown::Shown;
use super::spec::{Ms, Outcome, Who, outcome};
use super::{Checker, Name, Running, Verdict};
use crate::request::{Request, Verb, token_of};

/// A reply that must come.
pub(super) enum Expected {
    Integer(i64),
    IntegerOrLost(i64),
    Nil,
    Error(&'static str),
    NilOrError(&'static str),
    Shown(Shown),
    /// Any reply that is no error.
    Anything,
}

impl Checker {
    /// A command has come to its end.
    pub(super) fn end(&mut self, running: Running, blocked: bool, now: Ms) -> Verdict {
        let Running { tag, client, name, denies_blocking, request, reply, or_lost, withdrew } = running;
        let waiting = self.waiting.len();
        let limit = self.limit;
        let door = self.door(&name);
        if let Some(Some(draft)) = &door.draft {
            return Err(format!("a change that nobody is told of: {draft:?}"));
        }
        let lock = door.lock(now);
        let identity = token_of(request.identity);
        let come = outcome(&request, &identity, &lock, now);
        let expected = match (reply, come) {
            (Some(_), Outcome::Refused(code)) if matches!(request.verb, Verb::Fence) => {
                return Err(format!("{request} draws a token, and {code} is due"));
            }
            (Some(reply), _) if or_lost => Expected::IntegerOrLost(reply),
            (Some(reply), _) => Expected::Integer(reply),
            (None, Outcome::Done { after, reply }) if after == lock => {
                self.confirmed(&name, client, &request, reply, now);
                Expected::Integer(reply)
            }
            (None, Outcome::Done { after, .. }) => {
                return Err(format!("{request} should have made of {lock:?}: {after:?}"));
            }
            (None, Outcome::Contended) => match &request.verb {
                Verb::Take(take) if take.block.is_some() && !denies_blocking => {
                    if blocked {
                        if self.doors.values().map(Door::waiting).sum::<usize>() >= limit {
                            return Err(format!("{request} waits, and {limit} do already"));
                        }
                        let deadline = take.block.filter(|&ms| ms > 0).map(|ms| now + ms);
                        let (lease, session) = (take.lease, take.session);
                        let who = Who { form: take.form, name: identity };
                        self.make_room();
                        let door = self.door(&name);
                        door.join(who, Waiting { tag, client, deadline, lease, session, let_go: false }, now);
                        self.waiting.insert(tag, name);
                        return Ok(());
                    }
                    if waiting < limit {
                        return Err(format!("{request} does not wait"));
                    }
                    Expected::Error("QUEUEFULL")
                }
                _ => Expected::Nil,
            },
            (None, Outcome::Refused(code)) => Expected::Error(code),
            (None, Outcome::Looked) if matches!(request.verb, Verb::Fence) => {
                return Err(format!("{request} draws nothing"));
            }
            (None, Outcome::Looked) => {
                let shown = self.doors.get(&name).and_then(|door| Shown::of(door, &request.verb, now));
                shown.map_or(Expected::Anything, Expected::Shown)
            }
        };
        if blocked {
            return Err(format!("{request} waits for {lock:?}"));
        }
        let expected = self.withdrawn(&name, &request, withdrew, expected);
        self.replies.insert(tag, expected);
        Ok(())
    }

    /// RELEASE takes its token out of the line.
    pub(super) fn withdrawn(&mut self, name: &Name, request: &Request, withdrew: bool, expected: Expected) -> Expected {
        if !matches!(request.verb, Verb::Release { .. }) {
            return expected;
        }
        let code = match expected {
            Expected::Integer(0) | Expected::IntegerOrLost(0) => None,
            Expected::Error(code @ ("NOTHELD" | "NOTOWNER" | "WRONGTYPE")) => Some(code),
            other => return other,
        };
        let (withdrawn, had_place) = self.door(name).withdraw(&token_of(request.identity));
        let waited = withdrew || !withdrawn.is_empty();
        self.release(withdrawn);
        match code {
            None => expected,
            Some(_) if waited => Expected::Nil,
            // A place that is away may have made room for another.
            Some(code) if had_place => Expected::NilOrError(code),
            Some(code) => Expected::Error(code),
        }
    }

    /// Where there are as many places as there may be, any that is away may go.
    pub(super) fn make_room(&mut self) {
        let places: usize = self.doors.values().map(|door| door.line.len()).sum();
        if places >= self.limit {
            self.doors.values_mut().for_each(Door::make_room);
        }
    }

    /// Those that waited at a place that was given up are due nil.
    pub(super) fn release(&mut self, withdrawn: Vec<Waiting>) {
        for request in withdrawn {
            self.waiting.remove(&request.tag);
            self.released.insert(request.tag);
        }
    }

    /// The holder was told again that it is the holder; the key is as it was.
    pub(super) fn confirmed(&mut self, name: &Name, client: ClientId, request: &Request, reply: i64, now: Ms) {
        let identity = token_of(request.identity);
        let door = self.door(name);
        door.grants.iter_mut().filter(|grant| grant.place.who.name == identity).for_each(Grant::tell);
        match &request.verb {
            Verb::Take(take) => {
                if let Some(lease) = take.lease.filter(|_| take.session) {
                    door.begin_session(Who { form: take.form, name: identity }, reply, lease, client, now);
                }
            }
            Verb::Extend { .. } => {
                if let Some(session) = door.session.as_mut().filter(|session| session.who.name == identity) {
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
            let said = || request.as_ref().map(Request::to_string).unwrap_or_default();
            return if expected.is(reply) { Ok(()) } else { Err(format!("{} is answered {reply:?}", said())) };
        }
        if self.released.remove(&tag) {
            self.asked.remove(&tag);
            // The server may answer it in the module's place, even then.
            return if matches!(reply, Reply::Nil | Reply::Error(_)) {
                Ok(())
            } else {
                Err(format!("who was let go is answered {reply:?}"))
            };
        }
        let Some(name) = self.waiting.get(&tag).cloned() else {
            // The server has refused it, or it was answered inside a script.
            let refused = matches!(reply, Reply::Error(_));
            let known = self.asked.remove(&tag).is_some();
            return if refused || !known { Ok(()) } else { Err(format!("{reply:?} out of nowhere")) };
        };
        self.waiter_replied(&name, tag, reply, now)
    }

    pub(super) fn waiter_replied(&mut self, name: &Name, tag: Tag, reply: &Reply, now: Ms) -> Verdict {
        let kept_until = now + self.grace_ms;
        let unblocked = &self.unblocked;
        let releasing = self
            .running
            .as_mut()
            .filter(|running| matches!(running.request.verb, Verb::Release { .. }) && running.name == *name);
        let door = self.doors.entry(name.clone()).or_default();
        let grant = door.grants.iter_mut().find(|grant| grant.open.iter().any(|request| request.tag == tag));
        match (grant, reply) {
            (Some(grant), Reply::Integer(1)) => grant.told = true,
            // Its time was up just before another one's turn came at the same place.
            (Some(grant), Reply::Nil) if grant.is_over_for(tag, now) => {
                let index = grant.open.iter().position(|request| request.tag == tag);
                let over = index.map(|index| grant.open.remove(index)).filter(|request| request.session);
                if over.is_some_and(|over| door.session.as_mut().is_some_and(|session| session.leave(over.client, now)))
                {
                    door.session = None;
                }
                self.waiting.remove(&tag);
            }
            // The server has answered it in the module's place, which Valkey says only when it frees the client.
            (Some(_), Reply::Error(_)) => {
                if !matches!(self.kind, ServerKind::Valkey8 | ServerKind::Valkey9) {
                    self.freed(tag, now);
                }
                return Ok(());
            }
            (None, Reply::Nil) => {
                let who = door.place_of(tag).map(|place| place.who.name.clone());
                let Some(request) = door.leave(tag, kept_until) else {
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
            (None, Reply::Error(_)) => {
                door.leave(tag, kept_until);
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

impl Expected {
    fn is(&self, reply: &Reply) -> bool {
        let is_error = |code: &str| matches!(reply, Reply::Error(text) if text.split(' ').next() == Some(code));
        match self {
            Self::Integer(value) => *reply == Reply::Integer(*value),
            Self::IntegerOrLost(value) => {
                [Reply::Integer(*value), Reply::Nil].contains(reply) || is_error("NOTHELD") || is_error("NOTOWNER")
            }
            Self::Nil => *reply == Reply::Nil,
            Self::Error(code) => is_error(code),
            Self::NilOrError(code) => *reply == Reply::Nil || is_error(code),
            Self::Shown(shown) => shown.is(reply),
            Self::Anything => !matches!(reply, Reply::Error(_)),
        }
    }
}
