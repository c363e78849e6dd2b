//! What a client knows about a token: what it has asked for, what the replies were, and until when the token must hold.

use std::time::{Duration, Instant};

use crate::history::{Form, Hold};
use crate::keys::Key;
use crate::report::Rule;
use crate::run::Run;
use crate::token::Token;

/// Server and clients read two clocks, of which one can be adjusted by half a thousandth: less than this in the longest
/// lease.
const CLOCKS: Duration = Duration::from_millis(1);
const FLUSHED: Rule = "FLUSHALL takes every lock from its holder";
/// Longer than any run: a lock that is held until it is released.
const WITHOUT_END: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    Reentrant,
    Share,
}

impl Kind {
    /// The name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutexes",
            Self::Reentrant => "re-entrant locks",
            Self::Share => "shares",
        }
    }
}

/// The time for which the lock is the token's, if it is not flushed.
#[derive(Clone, Copy)]
struct Lease {
    /// When the request was sent.
    asked: Instant,
    until: Instant,
}

/// One token and the lock that it asks for.
pub struct Claim<'r> {
    run: &'r Run,
    pub key: &'r Key,
    pub token: Token,
    pub kind: Kind,
    /// `None` if the lock is held until it is released.
    pub lease_ms: Option<u64>,
    pub session: bool,
    /// How many requests were sent for the grant.
    requests: u32,
    /// A request has no reply that was read, so the token can hold although its client does not know it.
    pub is_uncertain: bool,
    begun: Instant,
    granted: Option<Instant>,
    lease: Option<Lease>,
    epoch: u64,
}

impl<'r> Claim<'r> {
    pub fn new(run: &'r Run, key: &'r Key, kind: Kind, lease_ms: Option<u64>) -> Self {
        Self {
            run,
            key,
            token: run.tokens.fresh(),
            kind,
            lease_ms,
            session: false,
            requests: 0,
            is_uncertain: false,
            begun: Instant::now(),
            granted: None,
            lease: None,
            epoch: run.nodes.epoch(),
        }
    }

    /// The request for the lock. `block_ms` is `None` for a request that does not wait.
    pub fn request(&mut self, block_ms: Option<u64>) -> String {
        self.requests += 1;
        let option = |name: &str, value: Option<u64>| value.map_or(String::new(), |value| format!(" {name} {value}"));
        let (command, limit) = match self.kind {
            Kind::Mutex => ("ACQUIRE", String::new()),
            Kind::Reentrant => ("REENTER", " HOLD 1".to_owned()),
            Kind::Share => ("SHARE", option("LIMIT", self.key.limit.map(|limit| limit as u64))),
        };
        // The lock of a session with an even lease is kept for half of that after its connection has closed.
        let grace = option("GRACE", self.lease_ms.filter(|lease| lease % 2 == 0).map(|lease| lease / 2));
        let session = if self.session { format!(" SESSION{grace}") } else { String::new() };
        let (lease, block) = (option("PX", self.lease_ms), option("BLOCK", block_ms));
        format!("LOCK.{command} {} {}{lease}{limit}{session}{block}", self.key.name, self.token)
    }

    /// The request that releases the lock, or withdraws from the queue.
    pub fn release_line(&self) -> String {
        let hold = if self.kind == Kind::Reentrant { " HOLD 1" } else { "" };
        format!("LOCK.RELEASE {} {}{hold}", self.key.name, self.token)
    }

    /// A message has shown a grant with this end of the lease.
    pub fn granted_until(&mut self, asked: Instant, received: Instant, end: Instant) {
        self.granted = Some(received);
        self.lease = end.checked_sub(CLOCKS).map(|until| Lease { asked, until });
    }

    /// Until then the lock is the token's.
    pub fn safe_until(&self) -> Option<Instant> {
        let Lease { asked, until } = self.lease?;
        let flushed = self.run.flushes.first_since(asked);
        Some(flushed.map_or(until, |begun| begun.min(until)))
    }

    /// Nothing is certain any more: a release may have been carried out.
    pub fn may_be_over(&mut self) {
        self.lease = None;
        self.is_uncertain = true;
    }

    /// Whether the server can have anything left of it.
    pub fn may_hold(&self) -> bool {
        self.lease.is_some() || self.is_uncertain
    }

    /// Whether FLUSHALL has certainly taken the lock before a request was sent, and the token was not granted it again.
    /// A session gets back a lock whose lease has ended before the server notices the flush.
    pub fn is_flushed(&self, sent: Instant) -> bool {
        let took_it = |granted| self.run.flushes.took_all(granted, sent);
        self.has_one_request() && !self.session && self.granted.is_some_and(took_it)
    }

    /// A request that was sent then has shown that the token holds.
    pub fn check_held(&self, sent: Instant) {
        if self.is_flushed(sent) {
            let what = "it was granted, then everything was flushed, and it holds the lock".to_owned();
            return self.run.check_strict(self.key, Some((FLUSHED, what)));
        }
        // A token that was sent more than once can have lost the lock and have been granted it again by an early
        // request that arrived late, so only its lease counts.
        let certain = if self.has_one_request() { Some(sent) } else { self.safe_until().map(|end| end.min(sent)) };
        self.confirm_until(certain);
    }

    /// The token certainly held the lock from the reply to its request until then.
    pub fn confirm_until(&self, until: Option<Instant>) {
        let Some((from, until)) = self.granted.zip(until) else { return };
        let form = if self.kind == Kind::Share { Form::Share } else { Form::Exclusive };
        self.run.confirm(self.key, Hold { token: self.token, form, from, until, one_request: self.has_one_request() });
    }

    /// The request that was sent then was granted.
    pub fn granted(&mut self, sent: Instant, received: Instant) {
        self.granted = Some(received);
        self.lease_from(sent, self.run.in_force.cut(self.lease_ms, sent, received));
    }

    /// A lease of this length counts from `sent` at the earliest. None of it is certain where the clock is set.
    pub fn lease_from(&mut self, sent: Instant, lease_ms: Option<u64>) {
        let certain = |ms| if self.run.has_steady_clock() { Duration::from_millis(ms) } else { Duration::ZERO };
        let lease = lease_ms.map_or(WITHOUT_END, certain);
        self.lease = Some(Lease { asked: sent, until: sent + lease.saturating_sub(CLOCKS) });
    }

    /// The same grant again, or another hold: the lease can only have grown.
    pub fn lengthened(&mut self, sent: Instant, received: Instant) {
        let before = self.lease.map(|lease| lease.until);
        self.lease_from(sent, self.run.in_force.cut(self.lease_ms, sent, received));
        if let (Some(lease), Some(until)) = (&mut self.lease, before) {
            lease.until = lease.until.max(until);
        }
    }

    pub fn is_granted(&self) -> bool {
        self.granted.is_some()
    }

    /// Another request was sent with this token than the one for its grant.
    pub fn asked_otherwise(&mut self) {
        self.requests += 1;
    }

    pub fn has_one_request(&self) -> bool {
        self.requests == 1
    }

    /// Whether the lock must still be the token's when a reply was received then, because its lease was running.
    pub fn has_lease_at(&self, received: Instant) -> bool {
        self.granted.is_some() && self.safe_until().is_some_and(|end| received < end)
    }

    /// Whether sessions and queues may have ended since the lock was first asked for.
    pub fn is_from_before(&self) -> bool {
        self.run.nodes.has_changed_since(self.epoch)
    }

    /// Whether the lock must be the token's while its connection is open. It need not after a restart or FLUSHALL; and
    /// around a recovery period a session gets its lock back later.
    pub fn has_session(&self) -> bool {
        let goes_on = |granted| !self.run.in_force.may_suspend(granted, Instant::now());
        let is_undisturbed = !self.is_from_before() && !self.run.flushes.any_since(self.begun);
        self.granted.is_some_and(goes_on) && self.session && is_undisturbed
    }
}
