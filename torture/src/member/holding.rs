//! From the grant to the release, and what a client may be told on the way.

use std::time::{Duration, Instant};

use support::Reply;

use super::{Answer, Claim, Kind, Member};
use crate::settings::is_put_off;

pub const KEPT: &str = "who was told 1 holds the lock until its lease ends";
pub const SESSION: &str = "a session has its lock, or gets it back, while its connection is open";
const NIL_IS_NIL: &str = "who was told nil does not hold the lock";
pub const EXPECTED: &str = "only answers that the contract knows";

/// What an answer says about who holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The caller.
    Yours,
    /// Not the caller.
    NotYours,
    /// The connection was closed, or the answer does not say it.
    Unknown,
}

impl<'w> Member<'w> {
    /// Takes in the answer to a request for the lock.
    pub(super) fn told(&mut self, claim: &mut Claim<'w>, answer: &Answer) -> Told {
        self.judge(claim, claim.lease_ms, answer);
        match &answer.reply {
            Reply::Int(1) => {
                claim.granted(self.world, answer.sent, answer.received);
                self.world.figures.grants.add(1);
                self.world.figures.met(claim.kind.name());
                Told::Yours
            }
            Reply::Nil => {
                // CLIENT UNBLOCK may have made the answer while the grant was under way.
                claim.doubtful |= self.link.is_none();
                Told::NotYours
            }
            Reply::Closed => {
                claim.doubtful = true;
                Told::Unknown
            }
            other => {
                if !self.may_be_told(other) {
                    self.charge(claim, EXPECTED, &format!("it was told {other:?}"));
                }
                claim.doubtful = true;
                Told::Unknown
            }
        }
    }

    /// An answer to what sets a lease must fit the settings.
    pub(super) fn judge(&self, claim: &Claim<'w>, lease_ms: Option<u64>, answer: &Answer) {
        let fresh = claim.has_one_request() && claim.told().is_none();
        let finding = self.world.settings.judge(lease_ms, fresh, &answer.reply, answer.sent, answer.received);
        if let Some((rule, what)) = finding {
            self.charge(claim, rule, &what);
        }
    }

    /// So must an answer to LOCK.EXTEND.
    pub(super) fn judge_extension(&self, claim: &Claim<'w>, lease_ms: u64, answer: &Answer) {
        let (sent, received) = (answer.sent, answer.received);
        let finding = self.world.settings.judge_extension(lease_ms, &answer.reply, sent, received);
        if let Some((rule, what)) = finding {
            self.charge(claim, rule, &what);
        }
    }

    /// Errors that a fault explains: CLIENT UNBLOCK, for which the connection is given up, refusals, and settings.
    pub(super) fn may_be_told(&self, reply: &Reply) -> bool {
        let Reply::Error(line) = reply else { return false };
        is_put_off(reply) || self.world.is_refusal(reply) || (line.starts_with("UNBLOCKED") && self.link.is_none())
    }

    /// Keeps a lock for some time, does with it what holders do, and mostly gives it back.
    pub(super) fn hold(&mut self, claim: Claim<'w>) {
        let Some(lease) = claim.lease_ms else { return self.hold_without_lease(claim) };
        if self.random.u8(..10) < 6 {
            let span = Duration::from_millis(self.random.u64(..=lease + lease / 4));
            self.world.rest(span);
        }
        self.finish(claim);
    }

    /// What a holder does when its work is done.
    pub(super) fn finish(&mut self, mut claim: Claim<'w>) {
        if self.random.u8(..4) == 0 && !self.extend(&mut claim) {
            return;
        }
        if self.random.u8(..8) == 0 {
            // The lease ends by itself, or the connection that the lock belongs to does.
            if claim.session {
                self.hang_up();
            } else {
                self.was_held_until(&claim, claim.safe_until(self.world).map(|end| end.min(Instant::now())));
            }
            return;
        }
        self.release(&mut claim);
    }

    /// Sets the lease; false when the lock is lost, or nothing more is known of it.
    pub(super) fn extend(&mut self, claim: &mut Claim<'w>) -> bool {
        if self.session_is_gone(claim) {
            return false;
        }
        let lease = self.random.u64(if claim.session { 100..600 } else { 5..600 });
        let answer = self.ask(claim, format!("LOCK.EXTEND {} {} PX {lease}", claim.key.name, claim.token), 0);
        self.judge_extension(claim, lease, &answer);
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

    /// Gives the lock back, with a second try should the connection break.
    pub(super) fn release(&mut self, claim: &mut Claim<'w>) {
        for _ in 0..2 {
            if self.session_is_gone(claim) {
                return;
            }
            let answer = self.ask(claim, claim.release_line(), 0);
            self.released(claim, &answer);
            if answer.reply != Reply::Closed {
                return;
            }
            // The first try may have worked.
            claim.may_be_over();
        }
    }

    /// Keeps a lock that has no lease for a short time, and gives it back for certain.
    fn hold_without_lease(&mut self, claim: Claim<'w>) {
        let span = Duration::from_millis(self.random.u64(..60));
        self.world.rest(span);
        self.clean_up(claim);
    }

    /// Releases until there is an answer: nothing else would end the hold.
    pub(super) fn clean_up(&mut self, mut claim: Claim<'w>) {
        while claim.may_hold() {
            let answer = self.ask(&claim, claim.release_line(), 0);
            self.released(&mut claim, &answer);
            let refused = self.world.is_refusal(&answer.reply);
            if self.world.court.is_over() || !(answer.reply == Reply::Closed || refused) {
                return;
            }
            // The first try may have worked.
            claim.may_be_over();
        }
    }

    /// Takes in the answer to the release of the last hold.
    pub(super) fn released(&mut self, claim: &mut Claim<'w>, answer: &Answer) {
        match &answer.reply {
            Reply::Int(0) => self.was_held(claim, answer),
            Reply::Closed => {}
            other => self.was_refused(claim, other, answer),
        }
    }

    /// The token was found to hold the lock.
    pub(super) fn was_held(&self, claim: &Claim<'w>, answer: &Answer) {
        if claim.told().is_none() && !claim.doubtful {
            self.charge(claim, NIL_IS_NIL, "it holds the lock");
        }
        if let Some((rule, what)) = claim.found_to_hold(self.world, answer.sent) {
            self.charge(claim, rule, &what);
        }
    }

    /// The token certainly held the lock from when its client was told until then.
    fn was_held_until(&self, claim: &Claim<'w>, until: Option<Instant>) {
        if let Some((rule, what)) = claim.held_until(self.world, until) {
            self.charge(claim, rule, &what);
        }
    }

    /// The token was told that it does not hold the lock, or something else.
    fn was_refused(&self, claim: &Claim<'w>, reply: &Reply, answer: &Answer) {
        let known = match reply {
            Reply::Nil => claim.told().is_none() || claim.doubtful,
            Reply::Error(line) => ["NOTHELD", "NOTOWNER"].iter().any(|code| line.starts_with(code)),
            _ => false,
        };
        if self.world.is_refusal(reply) || self.has_gained_a_hold(claim, reply) {
            return;
        }
        if claim.is_flushed(self.world, answer.sent) {
            self.world.figures.met("locks lost to FLUSHALL");
        }
        if !known {
            self.charge(claim, EXPECTED, &format!("it was told {reply:?}"));
        }
        let what = format!("it was told 1, and then {reply:?}");
        if claim.has_lease_at(self.world, answer.received) {
            self.charge(claim, KEPT, &what);
        } else if claim.has_session(self.world) {
            self.charge(claim, SESSION, &what);
        }
    }

    /// A request for a hold that a bad network lets pass late, when it was sent again and that hold was given back, takes it once
    /// more: so the token has the lock, with one hold more than its client knows of.
    fn has_gained_a_hold(&self, claim: &Claim<'w>, reply: &Reply) -> bool {
        let is_mismatch = matches!(reply, Reply::Error(line) if line.starts_with("HOLDMISMATCH"));
        is_mismatch && claim.kind == Kind::Reentrant && self.has_bad_network()
    }

    /// A session's lock is released with its connection. (CLIENT UNBLOCK makes clients close it.) One to a server that is
    /// not the master any more may have been closed there before.
    fn session_is_gone(&mut self, claim: &Claim<'w>) -> bool {
        self.link = self.world.still(self.link.take());
        claim.session && self.link.is_none()
    }
}
