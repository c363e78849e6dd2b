//! What is known of one token: when it certainly held the lock, and which replies are wrong whatever other clients do.
//! Whether the replies to all tokens have an order is for the crate `judge`, which reads the history file.

use std::time::{Duration, Instant};

use support::Reply;

use super::holds::Hold;
use super::operation::{Action, Kind, Operation};
use crate::evidence::{Evidence, SUSPENDED, is_put_off};
use crate::report::{Finding, Rule};
use crate::token::Token;

pub const EXPECTED: Rule = "only replies that the contract allows";
const KEPT: Rule = "a client that was granted a lock holds it until its lease ends";
const SESSION: Rule = "a session has its lock, or gets it back, while its connection is open";
const SAME: Rule = "a holder that asks again is granted the lock again, and only in the same form";
const DATED: Rule = "a message of a grant names an end within the lease";
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
    pub is_unblocked: bool,
    pub is_direct: bool,
}

#[derive(Debug, PartialEq)]
pub enum Ruling {
    /// The token held the lock when the request was sent.
    Held,
    NotHeld,
    Allowed,
    Broken(Rule),
}

/// The lock is the token's from its grant after `asked` until the end, if it is not flushed.
#[derive(Clone, Copy)]
struct Lease {
    asked: Instant,
    until: Instant,
    /// The end before a request was sent that can change it.
    before: Instant,
}

pub struct Record {
    is_share: bool,
    /// A moment before the first request, also by the clock of leases.
    pub begun: Instant,
    begun_ms: i64,
    lease_ms: Option<u64>,
    /// How many requests asked for the lock.
    requests: u32,
    granted: Option<Instant>,
    lease: Option<Lease>,
    /// The connection with the session.
    session: Option<i64>,
    /// The release of the last hold was sent. A copy on another connection can be granted the lock after it.
    is_released: bool,
}

impl Record {
    pub fn new(operation: &Operation, kind: Kind, begun: Instant, begun_ms: i64) -> Self {
        Self {
            is_share: kind == Kind::Share,
            begun,
            begun_ms,
            lease_ms: operation.lease_ms,
            requests: 0,
            granted: None,
            lease: None,
            session: None,
            is_released: false,
        }
    }

    /// A request that can change the lease leaves nothing certain until its reply.
    pub fn sent(&mut self, operation: &Operation, at: Instant) {
        self.requests += u32::from(operation.asks());
        self.is_released |= operation.action == Action::Release && changes_lease(operation);
        if let Some(lease) = self.lease.as_mut().filter(|_| changes_lease(operation)) {
            (lease.before, lease.until) = (lease.until, lease.until.min(at));
        }
    }

    /// Whether the lock was certainly the token's while the server ran a request.
    fn must_hold(&self, evidence: &Evidence, exchange: &Exchange<'_>) -> bool {
        let is_known = self.granted.is_some_and(|at| at <= exchange.sent);
        self.lease.filter(|_| is_known).is_some_and(|lease| {
            let end = if changes_lease(exchange.operation) { lease.before } else { lease.until };
            exchange.received < end && !evidence.flushes.any_since(lease.asked)
        })
    }

    fn safe_until(&self, evidence: &Evidence) -> Option<Instant> {
        let Lease { asked, until, .. } = self.lease?;
        Some(evidence.flushes.first_since(asked).map_or(until, |begun| begun.min(until)))
    }

    fn is_safe_at(&self, evidence: &Evidence, at: Instant) -> bool {
        self.granted.is_some() && self.safe_until(evidence).is_some_and(|end| at < end)
    }

    /// Whether the lock must be the token's while this connection is open. It need not after a restart or FLUSHALL; and
    /// around a recovery period a session gets its lock back later.
    fn has_session(&self, evidence: &Evidence, connection: i64, received: Instant) -> bool {
        let goes_on = |granted| !evidence.may_suspend(granted, received);
        let is_disturbed = evidence.changes.any_since(self.begun) || evidence.flushes.any_since(self.begun);
        self.session == Some(connection) && self.granted.is_some_and(goes_on) && !is_disturbed
    }

    /// Returns the hold that a request confirms, or the one until now if none does. A token that was sent more than once
    /// can have lost the lock and have been granted it again by an early request that arrived late, so only its lease
    /// counts.
    pub fn hold(&self, token: Token, evidence: &Evidence, confirmed: Option<Instant>) -> Option<Hold> {
        let one_request = self.requests == 1;
        let certain = confirmed.filter(|_| one_request);
        let until = certain.or_else(|| Some(self.safe_until(evidence)?.min(confirmed.unwrap_or_else(Instant::now))))?;
        Some(Hold { token, is_share: self.is_share, from: self.granted?, until, one_request })
    }

    /// Takes in a reply, and returns the hold that it confirms.
    pub fn judge(&mut self, evidence: &Evidence, exchange: &Exchange<'_>) -> (Finding, Ruling, Option<Hold>) {
        let Exchange { operation, reply, sent, received, .. } = *exchange;
        let asks = if let Action::Acquire(kind) = operation.action { Some(kind) } else { None };
        let is_fresh = asks.is_some() && self.requests == 1 && self.granted.is_none();
        let check = || evidence.check_lease(operation.lease_ms, is_fresh, reply, (sent, received));
        let finding = (asks.is_some() || operation.action == Action::Extend).then(check).flatten();
        let ruling = match asks {
            Some(kind) => self.asked(evidence, kind, exchange),
            None => self.changed(evidence, exchange),
        };
        if ruling != Ruling::Held {
            return (finding, ruling, None);
        }
        let hold = self.hold(operation.token, evidence, Some(sent));
        if operation.action == Action::Extend && !self.is_released {
            let goes_on = self.requests == 1 || self.lease.is_some_and(|lease| lease.until >= sent);
            self.granted = self.granted.filter(|_| goes_on).or(Some(received));
            self.lease = Some(lease_from(evidence, sent, operation.lease_ms));
        }
        (finding, ruling, hold)
    }

    fn asked(&mut self, evidence: &Evidence, kind: Kind, exchange: &Exchange<'_>) -> Ruling {
        let Exchange { operation, line, reply, connection, .. } = *exchange;
        let must_hold = self.must_hold(evidence, exchange);
        let is_other_form = (kind == Kind::Share) != self.is_share;
        match reply {
            Reply::Int(_) if is_other_form && must_hold => Ruling::Broken(SAME),
            Reply::Int(holds) if *holds == operation.hold.unwrap_or(1) => {
                self.granted(evidence, kind, exchange);
                Ruling::Allowed
            }
            Reply::Nil if must_hold => Ruling::Broken(SAME),
            Reply::Nil => Ruling::Allowed,
            reply if *reply == Reply::waiting() => {
                self.session = operation.session.then_some(connection);
                Ruling::Allowed
            }
            Reply::Error(_) => match reply.code() {
                "OTHERFORM" if is_other_form => Ruling::Held,
                "QUEUEFULL" if line.contains(" MAXWAITERS ") => Ruling::Allowed,
                "REPLACED" if must_hold => Ruling::Broken(SAME),
                // Only a token that was sent more than once can have waited twice.
                "REPLACED" if self.requests > 1 && line.contains(" BLOCK ") => Ruling::Allowed,
                "NOSUBSCRIBER" if line.contains(" NOTIFY ") => Ruling::Allowed,
                _ if is_put_off(reply) || is_refusal(evidence, exchange) => Ruling::Allowed,
                _ if !operation.asks() => self.refused(evidence, exchange),
                _ => Ruling::Broken(EXPECTED),
            },
            _ => Ruling::Broken(EXPECTED),
        }
    }

    fn granted(&mut self, evidence: &Evidence, kind: Kind, exchange: &Exchange<'_>) {
        let Exchange { operation, sent, received, connection, .. } = *exchange;
        if self.is_released {
            return;
        }
        // The same grant again, or another hold: the lease can only have grown.
        let is_same = !operation.asks() || self.is_safe_at(evidence, received);
        let least = self.lease.filter(|_| is_same).map_or(sent, |lease| lease.until);
        let lease = lease_from(evidence, sent, evidence.cut(operation.lease_ms, sent, received));
        self.lease = Some(Lease { until: lease.until.max(least), ..lease });
        if !is_same {
            (self.granted, self.is_share) = (Some(received), kind == Kind::Share);
        }
        if operation.session {
            self.session = Some(connection);
        }
    }

    fn changed(&self, evidence: &Evidence, exchange: &Exchange<'_>) -> Ruling {
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
        let Exchange { operation, reply, received, connection, .. } = *exchange;
        let code = if reply.is_error() { reply.code() } else { "" };
        // A request for a hold that a bad network delays, and that was sent again before that hold was released, takes
        // the hold another time: so the token has the lock, with one hold more than its client knows of.
        if is_refusal(evidence, exchange) || code == "HOLDMISMATCH" && !exchange.is_direct {
            return Ruling::Allowed;
        }
        let is_withdrawn = *reply == Reply::Nil && operation.action == Action::Release;
        if !is_withdrawn && !matches!(code, "NOTHELD" | "NOTOWNER") {
            Ruling::Broken(EXPECTED)
        } else if self.must_hold(evidence, exchange) {
            Ruling::Broken(KEPT)
        } else if self.has_session(evidence, connection, received) {
            Ruling::Broken(SESSION)
        } else {
            Ruling::NotHeld
        }
    }

    /// Takes in a message that the lock was granted, read at `received` or `received_ms` by the clock of leases.
    pub fn message(&mut self, evidence: &Evidence, received: Instant, received_ms: i64, end_ms: i64) -> Finding {
        if !self.is_released && !self.is_safe_at(evidence, received) {
            let left = Duration::from_millis(u64::try_from(end_ms - received_ms).unwrap_or_default());
            self.granted = Some(received);
            let until = (received + left).checked_sub(CLOCKS);
            self.lease = until.map(|until| Lease { asked: self.begun, until, before: until });
        }
        let longest = self.lease_ms.and_then(|ms| i64::try_from(ms).ok()).unwrap_or_default();
        let possible = self.begun_ms - CLOCKS_MS..=received_ms + longest + CLOCKS_MS;
        if !possible.contains(&end_ms) {
            return Some((DATED, format!("a lease of {longest} to {end_ms}, which can only be in {possible:?}")));
        }
        evidence.suspended.cover(self.begun, received).then(|| (SUSPENDED, "a message of a grant".to_owned()))
    }
}

/// A lease of this length counts from `asked` at the earliest. None of it is certain where the clock is set.
fn lease_from(evidence: &Evidence, asked: Instant, lease_ms: Option<u64>) -> Lease {
    let certain = |ms| if evidence.sets_clock { Duration::ZERO } else { Duration::from_millis(ms) };
    let until = asked + lease_ms.map_or(WITHOUT_END, certain).saturating_sub(CLOCKS);
    Lease { asked, until, before: until }
}

fn changes_lease(operation: &Operation) -> bool {
    operation.action == Action::Extend || operation.action == Action::Release && operation.hold.unwrap_or(1) == 1
}

/// Whether a fault has kept the server from running a command.
fn is_refusal(evidence: &Evidence, exchange: &Exchange<'_>) -> bool {
    let has_code = |code| exchange.reply.is_error() && exchange.reply.code() == code;
    let is_unblocked = exchange.is_unblocked && has_code("UNBLOCKED");
    is_unblocked || has_code("EXECABORT") || evidence.refusal(exchange.reply).is_some()
}

#[cfg(test)]
mod tests;
