//! From the grant to the release, and the replies that a client can get on the way.

use std::time::{Duration, Instant};

use support::Reply;

use super::super::{EXPECTED, KEPT, SESSION};
use super::{Answer, Claim, Client, Kind};
use crate::evidence::is_put_off;

const NIL_IS_NIL: &str = "a client whose reply is nil does not hold the lock";

/// What a reply says about the holder of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    Granted,
    Refused,
    /// The connection was closed, or the reply does not say it.
    Unknown,
}

impl<'r> Client<'r> {
    /// Takes in the reply to a request for the lock.
    pub(super) fn take_in(&mut self, claim: &mut Claim<'r>, answer: &Answer) -> Grant {
        self.check_lease(claim, answer);
        match &answer.reply {
            Reply::Int(1) => {
                claim.granted(answer.sent, answer.received);
                self.run.counters.add("grants", 1);
                self.run.counters.count(claim.kind.name());
                Grant::Granted
            }
            Reply::Nil => {
                // CLIENT UNBLOCK can have caused the reply while the grant was under way.
                claim.is_uncertain |= self.link.is_none();
                Grant::Refused
            }
            other => {
                if *other != Reply::Closed && !self.is_explained(other) {
                    self.report(claim, EXPECTED, &format!("the reply is {other:?}"));
                }
                claim.is_uncertain = true;
                Grant::Unknown
            }
        }
    }

    /// A reply to a request with a lease must fit the settings.
    pub(super) fn check_lease(&self, claim: &Claim<'r>, answer: &Answer) {
        let fresh = claim.has_one_request() && !claim.is_granted();
        let finding = self.run.in_force.check(claim.lease_ms, fresh, &answer.reply, answer.sent, answer.received);
        self.run.check_strict(claim.key, finding);
    }

    /// So must a reply to LOCK.EXTEND.
    pub(super) fn check_extension(&self, claim: &Claim<'r>, lease_ms: u64, answer: &Answer) {
        let (sent, received) = (answer.sent, answer.received);
        self.run.check_strict(claim.key, self.run.in_force.check_extension(lease_ms, &answer.reply, sent, received));
    }

    /// Errors that a fault explains: CLIENT UNBLOCK, after which the connection is closed, refusals, and settings.
    pub(super) fn is_explained(&self, reply: &Reply) -> bool {
        let Reply::Error(line) = reply else { return false };
        is_put_off(reply) || self.run.is_refusal(reply) || (line.starts_with("UNBLOCKED") && self.link.is_none())
    }

    /// Keeps a lock for some time, does with it what holders do, and mostly releases it.
    pub(super) fn hold(&mut self, claim: Claim<'r>) {
        let Some(lease) = claim.lease_ms else {
            let span = Duration::from_millis(self.random.u64(..60));
            self.run.think(span);
            return self.clean_up(claim);
        };
        if self.random.u8(..8) == 0 {
            self.draw_fence(&claim);
        }
        if self.random.u8(..10) < 6 {
            let span = Duration::from_millis(self.random.u64(..=lease + lease / 4));
            self.run.think(span);
        }
        self.finish(claim);
    }

    fn draw_fence(&mut self, claim: &Claim<'r>) {
        if self.session_is_over(claim) {
            return;
        }
        let (name, token) = (&claim.key.name, claim.token);
        let answer = self.ask(claim, format!("LOCK.FENCE {name} {token} fence:{name}"), 0);
        match &answer.reply {
            Reply::Int(_) => {
                self.run.counters.count("fencing tokens");
                self.was_held(claim, &answer);
            }
            Reply::Closed => {}
            other => self.was_refused(claim, other, &answer),
        }
    }

    /// The end of a hold.
    pub(super) fn finish(&mut self, mut claim: Claim<'r>) {
        if self.random.u8(..4) == 0 && !self.extend(&mut claim) {
            return;
        }
        if self.random.u8(..8) > 0 {
            return self.release(&mut claim);
        }
        // The lease ends by itself, or the session with its connection.
        if claim.session {
            self.link = None;
        } else {
            claim.confirm_until(claim.safe_until().map(|end| end.min(Instant::now())));
        }
    }

    /// Sets the lease; false if the lock is lost, or nothing more is known of it.
    fn extend(&mut self, claim: &mut Claim<'r>) -> bool {
        if self.session_is_over(claim) {
            return false;
        }
        let lease = self.random.u64(if claim.session { 100..600 } else { 5..600 });
        let answer = self.ask(claim, format!("LOCK.EXTEND {} {} PX {lease}", claim.key.name, claim.token), 0);
        self.check_extension(claim, lease, &answer);
        match &answer.reply {
            Reply::Int(_) => {
                self.was_held(claim, &answer);
                claim.lease_from(answer.sent, Some(lease));
                true
            }
            reply if is_put_off(reply) => true,
            Reply::Closed => {
                // It may or may not have set the lease.
                claim.may_be_over();
                !claim.session
            }
            other => {
                self.was_refused(claim, other, &answer);
                false
            }
        }
    }

    /// Releases the lock, with a second try if the connection is closed.
    pub(super) fn release(&mut self, claim: &mut Claim<'r>) {
        for _ in 0..2 {
            if self.session_is_over(claim) || !self.try_to_release(claim) {
                return;
            }
        }
    }

    /// Releases until there is a reply: nothing else would end a hold without a lease.
    pub(super) fn clean_up(&mut self, mut claim: Claim<'r>) {
        while claim.may_hold() && !self.run.is_over() && self.try_to_release(&mut claim) {}
    }

    /// Sends the release. Returns whether it must be sent again because the first one can have been lost.
    fn try_to_release(&mut self, claim: &mut Claim<'r>) -> bool {
        let answer = self.ask(claim, claim.release_line(), 0);
        self.released(claim, &answer);
        let is_lost = answer.reply == Reply::Closed || claim.lease_ms.is_none() && self.run.is_refusal(&answer.reply);
        if is_lost {
            claim.may_be_over();
        }
        is_lost
    }

    /// Takes in the reply to the release of the last hold.
    pub(super) fn released(&mut self, claim: &Claim<'r>, answer: &Answer) {
        match &answer.reply {
            Reply::Int(0) => self.was_held(claim, answer),
            Reply::Closed => {}
            other => self.was_refused(claim, other, answer),
        }
    }

    /// The reply shows that the token holds the lock.
    pub(super) fn was_held(&self, claim: &Claim<'r>, answer: &Answer) {
        if !claim.is_granted() && !claim.is_uncertain {
            self.report(claim, NIL_IS_NIL, "it holds the lock");
        }
        claim.check_held(answer.sent);
    }

    /// The reply is that the token does not hold the lock, or something else.
    fn was_refused(&self, claim: &Claim<'r>, reply: &Reply, answer: &Answer) {
        if self.run.is_refusal(reply) || self.has_gained_a_hold(claim, reply) {
            return;
        }
        if claim.is_flushed(answer.sent) {
            self.run.counters.count("locks lost to FLUSHALL");
        }
        let is_allowed = match reply {
            Reply::Nil => !claim.is_granted() || claim.is_uncertain,
            Reply::Error(_) => matches!(reply.code(), "NOTHELD" | "NOTOWNER"),
            _ => false,
        };
        if !is_allowed {
            self.report(claim, EXPECTED, &format!("the reply is {reply:?}"));
        }
        let what = format!("it was granted, and then the reply is {reply:?}");
        if claim.has_lease_at(answer.received) {
            self.report(claim, KEPT, &what);
        } else if claim.has_session() {
            self.report(claim, SESSION, &what);
        }
    }

    /// A request for a hold that a bad network delays, and that was sent again before that hold was released, takes the
    /// hold another time: so the token has the lock, with one hold more than its client knows of.
    fn has_gained_a_hold(&self, claim: &Claim<'r>, reply: &Reply) -> bool {
        let is_mismatch = reply.is_error() && reply.code() == "HOLDMISMATCH";
        is_mismatch && claim.kind == Kind::Reentrant && self.has_bad_network()
    }

    /// The lock of a session is released with its connection. (After CLIENT UNBLOCK clients close it.) A connection to
    /// a server that has been replaced may have been closed there.
    pub(super) fn session_is_over(&mut self, claim: &Claim<'r>) -> bool {
        self.link = self.run.current(self.link.take());
        claim.session && self.link.is_none()
    }
}
