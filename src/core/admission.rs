//! Admission: the decision on a request. The host carries it out without a change.
//!
//! The host reads the lock, and answers the questions of [`Facts`] about the server. Nothing else overrules a decision.

use super::{
    BlockTimeout, Decision, Error, HoldNumber, Kind, Lease, LeaseEnd, Limit, Lock, SessionTerms, UnixMs, Write,
    acquire, extend, reenter, release, share,
};

/// A request to change one lock, on behalf of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub action: Action,
    pub lease: Option<Lease>,
    /// Whether the request asks for a session. Then it has a lease.
    pub session: bool,
    /// How long the lock is held after the last connection of its session has closed.
    pub grace: Option<Lease>,
    /// How long the request waits while the lock is held, or `None` for the reply nil.
    pub wait: Option<BlockTimeout>,
    /// The number of requests waiting for the lock, at which this one does not wait.
    pub max_waiters: Option<Limit>,
}

/// What a request does with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Takes the mutex. With `strict`, a lock that the caller holds already is contended, too.
    Acquire { strict: bool },
    /// Takes the re-entrant lock, or one more hold of it.
    Reenter { hold: Option<HoldNumber> },
    /// Takes a share of the lock.
    Share { limit: Option<Limit> },
    /// Releases one hold.
    Release { hold: Option<HoldNumber> },
    /// Sets the lease, or adds to it. The request has a lease.
    Extend { add: bool },
}

/// What a decision depends on, besides the lock and the request. Only the questions that matter for a request are asked.
pub trait Facts {
    /// Returns whether others come first: a request is in the queue of the lock, which could not be granted it now, or shares of the
    /// lock are still being returned to their sessions.
    fn must_wait_for_others(&self) -> bool;

    /// Returns whether no caller may be granted a lock now, because this server may not know of all that are held.
    fn suspends_grants(&self) -> bool;

    /// Returns whether a lock that the caller does not hold now is to be returned to it when grants are not suspended any more: its
    /// lease has ended by itself, although the session goes on or the grace period does.
    fn will_regain(&self, now: UnixMs) -> bool;

    /// Checks that the end of a lease may be set now.
    ///
    /// # Errors
    ///
    /// [`Error::MayBeReplaced`] or [`Error::JustBegun`] if another server may grant the lock when its present lease ends.
    fn check_lease_change(&self) -> Result<(), Error>;

    /// Returns the longest lease that a lock may have, or `None` if there is no limit.
    fn longest_lease(&self) -> Option<Lease>;

    /// Returns whether the request can wait where it was sent.
    fn can_wait(&self) -> bool;

    /// Returns whether fewer than `most` requests wait for the lock, or the caller has a place in its queue, which may be kept.
    fn may_join(&self, kind: Kind, most: Limit) -> bool;

    /// Returns whether one more session can begin, or the request adds none.
    fn has_session_capacity(&self, kind: Kind) -> bool;
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Carry out `write`, then reply with the integer `reply`.
    Done { write: Write, reply: i64 },
    /// Put the request into the queue.
    Wait(BlockTimeout),
    /// Reply with nil.
    Nil,
}

impl Request {
    /// Returns the kind of the lock that the request takes, or `None` if it changes only what the caller holds.
    pub fn kind(&self) -> Option<Kind> {
        match self.action {
            Action::Acquire { .. } => Some(Kind::Mutex),
            Action::Reenter { .. } => Some(Kind::Reentrant),
            Action::Share { .. } => Some(Kind::Shared),
            Action::Release { .. } | Action::Extend { .. } => None,
        }
    }

    /// Returns the kind of the lock and the terms of the session, if the request asks for one.
    pub fn session(&self) -> Option<(Kind, SessionTerms)> {
        let terms = self.lease.filter(|_| self.session).map(|lease| SessionTerms { lease, grace: self.grace });
        self.kind().zip(terms)
    }

    /// Returns the maximum number of shares, or `None` for any number.
    pub fn limit(&self) -> Option<Limit> {
        if let Action::Share { limit } = self.action { limit } else { None }
    }

    /// Checks the requested lease against the longest one that a lock may have.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLimit`] if it is longer, or missing although the request may take the lock.
    pub fn check_lease(&self, longest: Option<Lease>) -> Result<(), Error> {
        let Some(longest) = longest else { return Ok(()) };
        let is_allowed = self.lease.map_or(self.kind().is_none(), |lease| lease <= longest);
        if is_allowed { Ok(()) } else { Err(Error::LeaseLimit) }
    }

    /// Returns whether the request withdraws the caller from the queue, with the result of [`admit`]. If the caller has a place in
    /// it, the request succeeds.
    ///
    /// After its last release a caller neither holds the lock nor waits for it, so that a client can always clean up with
    /// RELEASE.
    pub fn withdraws(&self, admitted: &Result<Verdict, Error>) -> bool {
        match admitted {
            Ok(Verdict::Done { write: Write::Free | Write::RemoveShare, .. }) => true,
            Err(Error::NotHeld | Error::NotOwner | Error::WrongType) => matches!(self.action, Action::Release { .. }),
            Ok(_) | Err(_) => false,
        }
    }

    #[inline(always)]
    fn decide(&self, lock: &Lock<'_, impl LeaseEnd>, caller: &[u8], now: UnixMs) -> Result<Decision, Error> {
        match self.action {
            Action::Acquire { strict } => acquire(lock, caller, self.lease, strict, now),
            Action::Reenter { hold } => reenter(lock, caller, self.lease, hold, now),
            Action::Share { limit } => share(lock, caller, self.lease, limit, now),
            Action::Release { hold } => release(lock, caller, self.lease, hold, now),
            Action::Extend { add } => extend(lock, caller, self.lease.ok_or(Error::Syntax)?, add, now),
        }
    }
}

/// Decides on a request of `caller` for a lock.
///
/// A request that could take the lock waits behind the waiters of the queue, and while grants are suspended.
///
/// # Errors
///
/// - Those of the decision for the action: [`acquire`], [`reenter`], [`share`], [`release`] or [`extend`].
/// - [`Error::TooManyWait`] if the request would wait, and as many others wait as its MAXWAITERS allows.
/// - [`Error::NoLease`] if the request asks for a session, and the caller holds the lock without a lease: nothing would free the
///   lock if the server failed.
/// - Those of [`Facts::check_lease_change`] if the lease of a present holder changes, or the request would wait for a lock that is to
///   be returned to the caller.
/// - [`Error::LeaseLimit`] if that lease becomes longer than [`Facts::longest_lease`].
/// - [`Error::SessionFull`] if the request begins a session, now or after a wait, and there is no capacity for it.
#[inline(always)]
pub fn admit(
    lock: &Lock<'_, impl LeaseEnd>,
    request: &Request,
    caller: &[u8],
    now: UnixMs,
    facts: &impl Facts,
) -> Result<Verdict, Error> {
    let verdict = match restrict(request.decide(lock, caller, now)?, now, facts)? {
        Decision::Done { write, reply } => Verdict::Done { write, reply },
        Decision::Contended => match request.wait.filter(|_| facts.can_wait()) {
            // It would wait for itself.
            Some(_) if facts.suspends_grants() && lock.held_by(caller).is_err() && facts.will_regain(now) => {
                return Err(facts.check_lease_change().err().unwrap_or(Error::JustBegun));
            }
            Some(timeout) => {
                check_queue(request, facts)?;
                Verdict::Wait(timeout)
            }
            None => Verdict::Nil,
        },
    };
    if let Some((kind, _)) = request.session() {
        check_session(lock, kind, caller, verdict, facts)?;
    }
    Ok(verdict)
}

/// Restricts a decision on the lock alone by the queue, the suspension of grants and the longest lease.
#[inline(always)]
fn restrict(decision: Decision, now: UnixMs, facts: &impl Facts) -> Result<Decision, Error> {
    let Decision::Done { write, .. } = decision else { return Ok(decision) };
    if matches!(write, Write::Take { .. }) {
        let must_wait = facts.must_wait_for_others() || facts.suspends_grants();
        return Ok(if must_wait { Decision::Contended } else { decision });
    }
    if let Some(end) = write.lease_end() {
        facts.check_lease_change()?;
        // EXTEND can add to a lease, so its end is known only now.
        if facts.longest_lease().is_some_and(|longest| end > longest.end_from(now)) {
            return Err(Error::LeaseLimit);
        }
    }
    Ok(decision)
}

/// Checks that a request may join the queue, or has a place in it.
fn check_queue(request: &Request, facts: &impl Facts) -> Result<(), Error> {
    let wanted = request.kind().zip(request.max_waiters);
    let may_wait = wanted.is_none_or(|(kind, most)| facts.may_join(kind, most));
    if may_wait { Ok(()) } else { Err(Error::TooManyWait) }
}

/// Checks that a session can begin, if one is to begin.
#[cold]
fn check_session(
    lock: &Lock<'_, impl LeaseEnd>,
    kind: Kind,
    caller: &[u8],
    verdict: Verdict,
    facts: &impl Facts,
) -> Result<(), Error> {
    if verdict == Verdict::Nil {
        return Ok(());
    }
    let waits = matches!(verdict, Verdict::Wait(_));
    if !waits && lock.held_by(caller).is_ok_and(|holder| holder.lease_end.get().is_none()) {
        return Err(Error::NoLease);
    }
    if facts.has_session_capacity(kind) { Ok(()) } else { Err(Error::SessionFull) }
}

#[cfg(test)]
mod tests;
