//! What a client knows about a token of its own: what it has asked, what it was told, and until when it must hold.

use std::time::{Duration, Instant};

use crate::court::Rule;
use crate::keys::Key;
use crate::ledger::{Finding, Form, Hold};
use crate::token::Token;
use crate::world::World;

/// Server and clients read two clocks, of which one may be adjusted by half a thousandth: less than this in the longest
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
    /// How others see a lock that is held in this way.
    pub fn form(self) -> Form {
        if self == Self::Share { Form::Share } else { Form::Alone }
    }

    /// What the figures call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutexes",
            Self::Reentrant => "re-entrant locks",
            Self::Share => "shares",
        }
    }
}

/// For how long the lock is the token's, whatever others do but FLUSHALL.
#[derive(Clone, Copy)]
struct Lease {
    /// The request that it answers was sent then.
    asked: Instant,
    until: Instant,
}

/// One token and the lock that it asks for.
pub struct Claim<'w> {
    pub key: &'w Key,
    pub token: Token,
    pub kind: Kind,
    /// None where the lock is held until it is released.
    pub lease_ms: Option<u64>,
    pub session: bool,
    /// How many requests were sent for the grant.
    requests: u32,
    /// A request was sent and its answer never read, so the token may hold without its client's knowledge.
    pub doubtful: bool,
    begun: Instant,
    told: Option<Instant>,
    lease: Option<Lease>,
    /// How often the server had begun anew when the lock was asked for.
    beginnings: u64,
    is_clock_steady: bool,
}

impl<'w> Claim<'w> {
    pub fn new(world: &World, key: &'w Key, kind: Kind, lease_ms: Option<u64>) -> Self {
        Self {
            key,
            token: world.mint.fresh(),
            kind,
            lease_ms,
            session: false,
            requests: 0,
            doubtful: false,
            begun: Instant::now(),
            told: None,
            lease: None,
            beginnings: world.server.beginnings(),
            is_clock_steady: world.is_clock_steady,
        }
    }

    pub fn for_session(mut self) -> Self {
        self.session = true;
        self
    }

    /// The request for the lock, as it is sent each time. None is for a request that does not wait.
    pub fn request(&mut self, block_ms: Option<u64>) -> String {
        self.requests += 1;
        let (name, token) = (&self.key.name, self.token);
        let lease = self.lease_ms.map_or(String::new(), |ms| format!(" PX {ms}"));
        // The lock of a session with an even lease is held on for half of that when its connection has closed.
        let grace =
            self.lease_ms.filter(|lease| lease % 2 == 0).map_or(String::new(), |ms| format!(" GRACE {}", ms / 2));
        let session = if self.session { format!(" SESSION{grace}") } else { String::new() };
        let block = block_ms.map_or(String::new(), |ms| format!(" BLOCK {ms}"));
        let (command, option) = match self.kind {
            Kind::Mutex => ("ACQUIRE", String::new()),
            Kind::Reentrant => ("REENTER", " HOLD 1".to_owned()),
            Kind::Share => ("SHARE", self.key.limit.map_or(String::new(), |limit| format!(" LIMIT {limit}"))),
        };
        format!("LOCK.{command} {name} {token}{lease}{option}{session}{block}")
    }

    /// Gives up the lock, or the place in line.
    pub fn release_line(&self) -> String {
        let hold = if self.kind == Kind::Reentrant { " HOLD 1" } else { "" };
        format!("LOCK.RELEASE {} {}{hold}", self.key.name, self.token)
    }

    /// The lock, which was asked for then, was granted, and the end of its lease was told.
    pub fn granted_until(&mut self, asked: Instant, received: Instant, end: Instant) {
        self.told = Some(received);
        self.lease = end.checked_sub(CLOCKS).map(|until| Lease { asked, until });
    }

    /// Until then the lock is the token's, whatever others do.
    pub fn safe_until(&self, world: &World) -> Option<Instant> {
        let Lease { asked, until } = self.lease?;
        let flushed = world.flushes.first_since(asked);
        Some(flushed.map_or(until, |begun| begun.min(until)))
    }

    /// Nothing is certain any more: a release may have been carried out.
    pub fn may_be_over(&mut self) {
        self.lease = None;
        self.doubtful = true;
    }

    /// Whether anything of it may be left with the server.
    pub fn may_hold(&self) -> bool {
        self.lease.is_some() || self.doubtful
    }

    /// Whether the lock was certainly taken from it by FLUSHALL, and cannot have been granted again, before a request was sent. A
    /// session gets back a lock whose lease has ended before the server could look at what was flushed.
    pub fn is_flushed(&self, world: &World, sent: Instant) -> bool {
        self.has_one_request() && !self.session && self.told.is_some_and(|told| world.flushes.took_all(told, sent))
    }

    /// The token was found to hold by a request that was sent then.
    pub fn found_to_hold(&self, world: &World, sent: Instant) -> Finding {
        if self.is_flushed(world, sent) {
            return Some((FLUSHED, "it was told 1, then everything was flushed, and it holds the lock".to_owned()));
        }
        self.held_until(world, self.certain_until(world, sent))
    }

    /// Notes that the token certainly held a strict lock from when its client was told until then.
    pub fn held_until(&self, world: &World, until: Option<Instant>) -> Finding {
        let (from, until) = self.told.zip(until).filter(|(from, until)| until > from && self.key.is_strict())?;
        let form = self.kind.form();
        let hold = Hold { token: self.token, form, from, until, one_request: self.has_one_request() };
        world.ledger.confirm(self.key.number, hold)
    }

    /// The request that was sent then was granted.
    pub fn granted(&mut self, world: &World, sent: Instant, received: Instant) {
        self.told = Some(received);
        self.lease_from(sent, world.settings.cut(self.lease_ms, sent, received));
    }

    /// A lease of this length counts from `sent` at the earliest. Nothing of it is certain where the clock is set.
    pub fn lease_from(&mut self, sent: Instant, lease_ms: Option<u64>) {
        let certain = |ms| if self.is_clock_steady { Duration::from_millis(ms) } else { Duration::ZERO };
        let lease = lease_ms.map_or(WITHOUT_END, certain);
        self.lease = Some(Lease { asked: sent, until: sent + lease.saturating_sub(CLOCKS) });
    }

    /// A further hold, which can only have lengthened the lease.
    pub fn lengthened(&mut self, world: &World, sent: Instant, received: Instant) {
        let before = self.lease.map(|lease| lease.until);
        self.lease_from(sent, world.settings.cut(self.lease_ms, sent, received));
        if let (Some(lease), Some(until)) = (&mut self.lease, before) {
            lease.until = lease.until.max(until);
        }
    }

    pub fn told(&self) -> Option<Instant> {
        self.told
    }

    /// A request was sent with this token that is not the one for its grant.
    pub fn asked_otherwise(&mut self) {
        self.requests += 1;
    }

    pub fn has_one_request(&self) -> bool {
        self.requests == 1
    }

    /// Whether the lock must still be the token's when an answer was received then, since its lease was running.
    pub fn has_lease_at(&self, world: &World, received: Instant) -> bool {
        self.told.is_some() && self.safe_until(world).is_some_and(|end| received < end)
    }

    /// Whether the server has begun anew since the lock was first asked for, or is about to.
    pub fn is_from_before(&self, world: &World) -> bool {
        world.server.has_begun_since(self.beginnings)
    }

    /// Whether the lock must be the token's as long as its connection answers. A server that begins anew may have
    /// ended it, FLUSHALL has, and around a recovery period a session gets its lock back later.
    pub fn has_session(&self, world: &World) -> bool {
        let goes_on = |told| !world.settings.may_hold_back(told, Instant::now());
        let is_left_alone = !self.is_from_before(world) && !world.flushes.any_since(self.begun);
        self.told.is_some_and(goes_on) && self.session && is_left_alone
    }

    /// The end of the span in which it certainly held, if it was found to hold by a request that was sent then. A token
    /// that was sent more than once may have lost the lock and have been granted it again by an early copy that arrived
    /// late, so only its lease counts.
    fn certain_until(&self, world: &World, sent: Instant) -> Option<Instant> {
        if self.has_one_request() { Some(sent) } else { self.safe_until(world).map(|end| end.min(sent)) }
    }
}
