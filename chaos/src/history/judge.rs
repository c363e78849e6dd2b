//! What is known of one token, and the replies that it allows: whatever a client does, its requests and the replies to
//! them are judged here.
//!
//! A client that was granted a lock holds it until its lease ends, unless it has sent a request that can change that.
//! After a request whose reply was never read nothing is certain, until a reply shows that the token holds the lock.

use std::time::{Duration, Instant};

use support::Reply;

use super::holds::Hold;
use super::operation::{Action, Kind, Operation};
use crate::evidence::{Evidence, NOTHING_IN_A_PAUSE, SUSPENDED, is_put_off};
use crate::report::{Finding, Rule};
use crate::token::Token;

pub const EXPECTED: Rule = "only replies that the contract allows";
const KEPT: Rule = "a client that was granted a lock holds it until its lease ends";
const SESSION: Rule = "a session has its lock, or gets it back, while its connection is open";
const NIL_IS_NIL: Rule = "a client whose reply is nil does not hold the lock";
const FLUSHED: Rule = "FLUSHALL takes every lock from its holder";
const SAME: Rule = "a request that is sent again while its token holds is granted again";
const FORMS: Rule = "nothing turns one form of a lock into another";
const DATED: Rule = "a grant that a message shows begins its lease at that time";
/// Server and clients read two clocks, of which one can be adjusted by half a thousandth: less than this in the longest
/// lease.
const CLOCKS: Duration = Duration::from_millis(1);
/// How far two readings of these clocks can be apart, in whole milliseconds.
const CLOCKS_MS: i64 = 2;
/// Longer than any run: a lock that is held until it is released.
const WITHOUT_END: Duration = Duration::from_secs(24 * 3600);

pub struct Exchange<'e> {
    pub operation: &'e Operation,
    pub line: &'e str,
    pub reply: &'e Reply,
    pub sent: Instant,
    pub received: Instant,
    pub connection: i64,
    /// The connection may have been unblocked: its reply can hide a grant.
    pub is_unblocked: bool,
    pub is_direct: bool,
}

/// A message that a lock was granted, by the clock of leases.
pub struct Message {
    pub server: u16,
    pub received: Instant,
    pub received_ms: i64,
    pub lease_end_ms: i64,
}

/// What a reply shows.
#[derive(Debug, PartialEq)]
pub enum Ruling {
    /// The token held the lock when the request was sent.
    Held,
    /// The token does not hold the lock any more, and no reply is expected that says something else.
    Over,
    Allowed,
    Broken(Rule),
}

/// The time for which the lock is the token's, if it is not flushed.
#[derive(Clone, Copy)]
struct Lease {
    asked: Instant,
    until: Instant,
}

pub struct Record {
    kind: Kind,
    /// A moment before the first request, also by the clock of leases.
    begun: Instant,
    begun_ms: i64,
    lease_ms: Option<u64>,
    /// How many requests asked for the lock, and how many of these have no reply.
    requests: u32,
    open: u32,
    /// How many requests that can change the lease have no reply yet.
    changes: u32,
    /// The connection on which the last hold was released, perhaps in vain.
    released: Option<i64>,
    /// A request has no reply that was read, so the token can hold although its client does not know it.
    is_uncertain: bool,
    granted: Option<Instant>,
    /// The connection whose reply was the grant.
    granted_on: Option<i64>,
    lease: Option<Lease>,
    /// The connection with the session.
    session: Option<i64>,
}

impl Record {
    pub fn new(operation: &Operation, kind: Kind, begun: Instant, begun_ms: i64) -> Self {
        Self {
            kind,
            begun,
            begun_ms,
            lease_ms: operation.lease_ms,
            requests: 0,
            open: 0,
            changes: 0,
            released: None,
            is_uncertain: false,
            granted: None,
            granted_on: None,
            lease: None,
            session: None,
        }
    }

    pub fn begun(&self) -> Instant {
        self.begun
    }

    pub fn sent(&mut self, operation: &Operation, connection: i64) {
        match operation.action {
            Action::Acquire(_) if operation.asks() => (self.requests, self.open) = (self.requests + 1, self.open + 1),
            Action::Extend | Action::Release => self.changes += 1,
            Action::Acquire(_) | Action::Fence => {}
        }
        if operation.action == Action::Release && operation.hold.unwrap_or(1) == 1 {
            self.released = Some(connection);
        }
    }

    /// A request has a reply, or the connection was closed before one was read.
    fn ended(&mut self, operation: &Operation) {
        match operation.action {
            Action::Acquire(_) if operation.asks() => self.open = self.open.saturating_sub(1),
            Action::Extend | Action::Release => self.changes = self.changes.saturating_sub(1),
            Action::Acquire(_) | Action::Fence => {}
        }
    }

    /// A request ends without a reply that was read.
    pub fn lost(&mut self, operation: &Operation) {
        self.ended(operation);
        self.is_uncertain |= operation.action != Action::Fence;
        if matches!(operation.action, Action::Extend | Action::Release) {
            self.lease = None;
        }
    }

    /// Until then the lock is the token's.
    pub fn safe_until(&self, evidence: &Evidence) -> Option<Instant> {
        let Lease { asked, until } = self.lease?;
        Some(evidence.flushes.first_since(asked).map_or(until, |begun| begun.min(until)))
    }

    /// Whether the lock must still be the token's at this time.
    fn has_lease_at(&self, evidence: &Evidence, at: Instant) -> bool {
        self.granted.is_some() && self.safe_until(evidence).is_some_and(|end| at < end)
    }

    /// Whether the lock was certainly the token's while the server ran a request.
    fn must_hold(&self, evidence: &Evidence, exchange: &Exchange<'_>) -> bool {
        let was_granted = self.granted.is_some_and(|granted| granted <= exchange.sent);
        let is_known = was_granted || self.granted_on == Some(exchange.connection);
        is_known && self.changes == 0 && self.has_lease_at(evidence, exchange.received)
    }

    /// Whether the lock must be the token's while this connection is open. It need not after a restart or FLUSHALL; and
    /// around a recovery period a session gets its lock back later.
    fn has_session(&self, evidence: &Evidence, connection: i64, received: Instant) -> bool {
        let goes_on = |granted| self.changes == 0 && !evidence.may_suspend(granted, received);
        let is_disturbed = evidence.changes.any_since(self.begun) || evidence.flushes.any_since(self.begun);
        self.session == Some(connection) && self.granted.is_some_and(goes_on) && !is_disturbed
    }

    /// Whether FLUSHALL has certainly taken the lock before a request was sent, and the token was not granted it again.
    /// A session gets back a lock whose lease has ended before the server notices the flush.
    pub fn is_flushed(&self, evidence: &Evidence, sent: Instant) -> bool {
        let took_it = |granted| evidence.flushes.any_within(granted, sent, |took_all| took_all);
        self.requests == 1 && self.session.is_none() && self.granted.is_some_and(took_it)
    }

    /// Returns the hold that ended then at the earliest. A token that was sent more than once can have lost the lock
    /// and have been granted it again by an early request that arrived late, so only its lease counts.
    pub fn hold(&self, token: Token, evidence: &Evidence, sent: Instant) -> Option<Hold> {
        let one_request = self.requests == 1;
        let until = if one_request { sent } else { self.safe_until(evidence)?.min(sent) };
        Some(Hold { token, is_share: self.kind == Kind::Share, from: self.granted?, until, one_request })
    }

    /// The same without a reply that shows it, for a client that does nothing more with the token.
    pub fn last_hold(&self, token: Token, evidence: &Evidence) -> Option<Hold> {
        self.hold(token, evidence, self.safe_until(evidence)?.min(Instant::now()))
    }

    pub fn judge(&mut self, evidence: &Evidence, exchange: &Exchange<'_>) -> (Finding, Ruling) {
        let Exchange { operation, reply, sent, received, .. } = *exchange;
        self.ended(operation);
        let lease = operation.lease_ms;
        let finding = match operation.action {
            Action::Acquire(_) => {
                let is_fresh = self.requests == 1 && self.granted.is_none();
                evidence.check_lease(lease, is_fresh, reply, sent, received)
            }
            Action::Extend => evidence.check_extension(lease, reply, sent, received),
            Action::Release | Action::Fence => None,
        };
        let mut ruling = match operation.action {
            Action::Acquire(kind) => self.asked(evidence, kind, exchange),
            _ => self.changed(evidence, exchange),
        };
        if ruling == Ruling::Held {
            let is_known = self.granted.is_some() || self.is_uncertain || self.open > 0;
            if self.is_flushed(evidence, sent) {
                ruling = Ruling::Broken(FLUSHED);
            } else if !is_known {
                ruling = Ruling::Broken(NIL_IS_NIL);
            }
        }
        (finding, ruling)
    }

    /// The lease after a reply that shows a hold.
    pub fn held(&mut self, evidence: &Evidence, exchange: &Exchange<'_>) {
        if exchange.operation.action == Action::Extend {
            self.granted = self.granted.or(Some(exchange.received));
            self.lease = Some(lease_from(evidence, exchange.sent, exchange.operation.lease_ms));
        }
    }

    /// The reply to a request for the lock, or for another hold.
    fn asked(&mut self, evidence: &Evidence, kind: Kind, exchange: &Exchange<'_>) -> Ruling {
        let Exchange { operation, line, reply, .. } = *exchange;
        let must_hold = self.must_hold(evidence, exchange);
        let is_other_form = (kind == Kind::Share) != (self.kind == Kind::Share);
        let refused = if is_other_form { FORMS } else { SAME };
        match reply {
            Reply::Int(_) if is_other_form && must_hold => Ruling::Broken(FORMS),
            Reply::Int(holds) if *holds == operation.hold.unwrap_or(1) => {
                self.granted(evidence, kind, exchange);
                Ruling::Allowed
            }
            Reply::Nil if must_hold => Ruling::Broken(refused),
            Reply::Nil => {
                self.is_uncertain |= exchange.is_unblocked;
                Ruling::Allowed
            }
            reply if *reply == Reply::waiting() => {
                self.is_uncertain = true;
                self.session = operation.session.then_some(exchange.connection);
                Ruling::Allowed
            }
            Reply::Error(_) => match reply.code() {
                "OTHERFORM" if is_other_form => Ruling::Held,
                "QUEUEFULL" if line.contains(" MAXWAITERS ") => Ruling::Allowed,
                "NOSUBSCRIBER" if line.contains(" NOTIFY ") => Ruling::Allowed,
                _ if is_put_off(reply) => Ruling::Allowed,
                _ if is_refusal(evidence, exchange) => {
                    self.is_uncertain = true;
                    Ruling::Allowed
                }
                _ if !operation.asks() => self.refused(evidence, exchange),
                _ => Ruling::Broken(if must_hold { refused } else { EXPECTED }),
            },
            _ => Ruling::Broken(EXPECTED),
        }
    }

    fn granted(&mut self, evidence: &Evidence, kind: Kind, exchange: &Exchange<'_>) {
        let Exchange { operation, sent, received, connection, .. } = *exchange;
        // A copy on another connection can have been granted the lock after the release.
        if self.released.is_some_and(|released| released != connection) {
            return;
        }
        // The same grant again, or another hold: the lease can only have grown.
        let is_same = !operation.asks() || self.has_lease_at(evidence, received);
        let least = self.lease.filter(|_| is_same).map_or(sent, |lease| lease.until);
        let mut lease = lease_from(evidence, sent, evidence.cut(operation.lease_ms, sent, received));
        lease.until = lease.until.max(least);
        self.lease = Some(lease);
        if !is_same {
            (self.granted, self.granted_on, self.kind) = (Some(received), Some(connection), kind);
        }
        if operation.session {
            self.session = Some(connection);
        }
    }

    /// The reply to a request of a holder.
    fn changed(&mut self, evidence: &Evidence, exchange: &Exchange<'_>) -> Ruling {
        let Exchange { operation, reply, .. } = *exchange;
        match (operation.action, reply) {
            (Action::Release, Reply::Int(rest)) if *rest == operation.hold.unwrap_or(1) - 1 => Ruling::Held,
            (Action::Extend | Action::Fence, Reply::Int(_)) => Ruling::Held,
            (Action::Extend, reply) if is_put_off(reply) => Ruling::Allowed,
            _ => self.refused(evidence, exchange),
        }
    }

    /// The reply is that the token does not hold the lock, or something else.
    fn refused(&self, evidence: &Evidence, exchange: &Exchange<'_>) -> Ruling {
        let Exchange { reply, received, connection, .. } = *exchange;
        // A request for a hold that a bad network delays, and that was sent again before that hold was released, takes
        // the hold another time: so the token has the lock, with one hold more than its client knows of.
        let is_mismatch = reply.is_error() && reply.code() == "HOLDMISMATCH";
        if is_refusal(evidence, exchange) || is_mismatch && self.kind == Kind::Reentrant && !exchange.is_direct {
            return Ruling::Allowed;
        }
        let is_allowed = match reply {
            Reply::Nil => self.granted.is_none() || self.is_uncertain,
            Reply::Error(_) => matches!(reply.code(), "NOTHELD" | "NOTOWNER"),
            _ => false,
        };
        if !is_allowed {
            Ruling::Broken(EXPECTED)
        } else if self.must_hold(evidence, exchange) {
            Ruling::Broken(KEPT)
        } else if self.has_session(evidence, connection, received) {
            Ruling::Broken(SESSION)
        } else {
            Ruling::Over
        }
    }

    /// Takes in a message that the lock was granted. The lease must be the one of the request, as the settings can have
    /// cut it, and begin after the first request.
    pub fn message(&mut self, evidence: &Evidence, message: &Message) -> Finding {
        let Message { server, received, received_ms, lease_end_ms } = *message;
        if self.released.is_none() && !self.has_lease_at(evidence, received) {
            let left = Duration::from_millis(u64::try_from(lease_end_ms - received_ms).unwrap_or_default());
            self.granted = Some(received);
            self.lease = (received + left).checked_sub(CLOCKS).map(|until| Lease { asked: self.begun, until });
        }
        let leases = evidence.possible_leases(self.lease_ms, self.begun, received);
        let begun = |lease: Option<u64>| Some(lease_end_ms - i64::try_from(lease?).ok()?);
        let possible = self.begun_ms - CLOCKS_MS..=received_ms + CLOCKS_MS;
        if !leases.iter().any(|lease| begun(*lease).is_some_and(|begun| possible.contains(&begun))) {
            let first = self.begun_ms;
            let text =
                format!("a lease of {leases:?} to {lease_end_ms}; asked for at {first}, and now is {received_ms}");
            return Some((DATED, text));
        }
        let granted_ms = if let [lease] = leases[..] { begun(lease) } else { None };
        if granted_ms.is_some_and(|granted_ms| evidence.was_paused_at_ms(server, granted_ms)) {
            return Some((NOTHING_IN_A_PAUSE, format!("a message of a lease that ends at {lease_end_ms}")));
        }
        evidence.is_suspended(self.begun, received).then(|| (SUSPENDED, "a message of a grant".to_owned()))
    }
}

/// A lease of this length counts from `asked` at the earliest. None of it is certain where the clock is set.
fn lease_from(evidence: &Evidence, asked: Instant, lease_ms: Option<u64>) -> Lease {
    let certain = |ms| if evidence.sets_clock { Duration::ZERO } else { Duration::from_millis(ms) };
    Lease { asked, until: asked + lease_ms.map_or(WITHOUT_END, certain).saturating_sub(CLOCKS) }
}

/// Whether a fault has kept the server from running a command.
fn is_refusal(evidence: &Evidence, exchange: &Exchange<'_>) -> bool {
    let has_code = |code| exchange.reply.is_error() && exchange.reply.code() == code;
    let is_unblocked = exchange.is_unblocked && has_code("UNBLOCKED");
    is_unblocked || has_code("EXECABORT") || evidence.refusal(exchange.reply).is_some()
}

#[cfg(test)]
mod tests;
