//! The decisions on requests for one lock.
//!
//! Invariants: a decision never takes a lock from its holder. A lease of ACQUIRE, REENTER or RELEASE never shortens the present
//! lease, and never gives a lease to a lock that has none. Only EXTEND sets a lease exactly.

mod terms;

use std::borrow::Cow;

use super::{Error, UnixMs};
pub use terms::{BlockTimeout, HoldNumber, LATEST_SHARE_END, Lease, Limit, SessionTerms};

/// The kind of a lock, which determines its layout in the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A String whose value is the holder's token.
    Mutex,
    /// A Hash with one field: its name is the owner, its value the number of holds.
    Reentrant,
    /// A Sorted Set of the holders' tokens, each with the end of its lease as score.
    Shared,
}

/// The state of a lock, which was read from its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock<'k, L = Option<UnixMs>> {
    Free,
    /// Held by one holder alone.
    Held(Holder<'k, L>),
    /// Held by one or more shares.
    Shared(Shares<'k, L>),
}

/// The shares of a lock, for one caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares<'k, L = Option<UnixMs>> {
    /// The caller's own share, if it holds one.
    pub own: Option<Holder<'k, L>>,
    /// The number of shares that are held, at least 1.
    pub held: usize,
    /// The end of the last lease.
    pub lease_end: L,
}

/// The holder of a lock, or of a share of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder<'k, L = Option<UnixMs>> {
    pub kind: Kind,
    /// The token of a mutex or a share, or the owner of a re-entrant lock.
    pub owner: Cow<'k, [u8]>,
    /// The number of holds, at least 1; always 1 for a mutex or a share.
    pub holds: i64,
    /// The end of the lease.
    pub lease_end: L,
}

/// The end of a lease, or a way to look it up. Most decisions do not need it, and the look-up is a call of the server.
pub trait LeaseEnd {
    /// Returns the end of the lease, or `None` if the lock has no lease.
    fn get(&self) -> Option<UnixMs>;
}

impl LeaseEnd for Option<UnixMs> {
    fn get(&self) -> Option<UnixMs> {
        *self
    }
}

/// The write for the caller. It does not contain the caller's identity, which the host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Set a new end of the lease, if given. The same request was granted before.
    Confirm { lease_end: Option<UnixMs> },
    /// Make the caller the holder, with one hold. The key is free, or has shares if the kind is [`Kind::Shared`].
    Take { kind: Kind, lease_end: Option<UnixMs> },
    /// Set the caller's number of holds and, if given, a new end of the lease. The caller stays the holder.
    SetHolds { holds: i64, lease_end: Option<UnixMs> },
    /// Set a new end of the lease. The caller stays the holder.
    SetLease(UnixMs),
    /// Grant the lock to the next waiter, or delete the key. The caller has released its last hold.
    Free,
    /// Remove the caller's share, and grant the capacity to the next waiters.
    RemoveShare,
}

impl Write {
    /// Returns the end of the lease that the write sets, or `None` if it sets none.
    pub fn lease_end(self) -> Option<UnixMs> {
        match self {
            Self::Take { lease_end, .. } | Self::Confirm { lease_end } | Self::SetHolds { lease_end, .. } => lease_end,
            Self::SetLease(end) => Some(end),
            Self::Free | Self::RemoveShare => None,
        }
    }
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Carry out `write`, then reply with the integer `reply`.
    Done { write: Write, reply: i64 },
    /// The lock is held, and the caller waits or gets nil.
    Contended,
}

impl<L: LeaseEnd> Holder<'_, L> {
    fn has_identity(&self, caller: &[u8]) -> bool {
        *self.owner == *caller
    }

    /// Returns the end of `lease` if it begins at `now` and lengthens the present lease.
    fn lengthened(&self, lease: Option<Lease>, now: UnixMs) -> Option<UnixMs> {
        let wanted = lease?.end_from(now);
        let present = self.lease_end.get()?;
        (wanted > present).then_some(wanted)
    }
}

impl<'k, L: LeaseEnd> Lock<'k, L> {
    /// Returns the holder, if it is `caller`.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the lock is free, and [`Error::NotOwner`] if another caller holds it.
    pub fn held_by(&self, caller: &[u8]) -> Result<&Holder<'k, L>, Error> {
        self.assert_valid(caller);
        match self {
            Self::Free => Err(Error::NotHeld),
            Self::Held(holder) if holder.has_identity(caller) => Ok(holder),
            Self::Shared(Shares { own: Some(own), .. }) => Ok(own),
            Self::Held(_) | Self::Shared(_) => Err(Error::NotOwner),
        }
    }

    /// Asserts what the host promises of a lock that it has read for `caller`.
    #[inline(always)]
    fn assert_valid(&self, caller: &[u8]) {
        match self {
            Self::Free => {}
            Self::Held(holder) => {
                debug_assert!(holder.kind != Kind::Shared, "a share is held alone");
                debug_assert!(holder.holds >= 1, "a holder has no hold");
                debug_assert!(holder.kind == Kind::Reentrant || holder.holds == 1, "a mutex has several holds");
            }
            Self::Shared(shares) => {
                let own = shares.own.as_ref();
                debug_assert!(shares.held >= 1, "a shared lock has no shares");
                debug_assert!(own.is_none_or(|own| own.kind == Kind::Shared), "a share has another kind");
                debug_assert!(own.is_none_or(|own| own.holds == 1), "a share has several holds");
                debug_assert!(own.is_none_or(|own| own.has_identity(caller)), "a share of another caller");
            }
        }
    }

    /// Checks that `caller` does not hold the lock in the other form. It would wait for itself.
    fn check_form(&self, caller: &[u8], wanted: Kind) -> Result<(), Error> {
        let held = self.held_by(caller).map(|holder| holder.kind);
        let is_other = held.is_ok_and(|kind| (kind == Kind::Shared) != (wanted == Kind::Shared));
        if is_other { Err(Error::OtherForm) } else { Ok(()) }
    }

    /// Returns the end of the lease, or `None` if the lock is free or has no lease.
    pub fn lease_end(&self) -> Option<UnixMs> {
        match self {
            Self::Free => None,
            Self::Held(holder) => holder.lease_end.get(),
            Self::Shared(shares) => shares.lease_end.get(),
        }
    }
}

/// Decides LOCK.ACQUIRE: takes the mutex, or confirms that `token` holds it already.
///
/// With `strict` (option NX), a lock that `token` holds already is contended, too.
///
/// # Errors
///
/// [`Error::OtherForm`] if `token` holds a share.
#[inline(always)]
pub fn acquire(
    lock: &Lock<'_, impl LeaseEnd>,
    token: &[u8],
    lease: Option<Lease>,
    strict: bool,
    now: UnixMs,
) -> Result<Decision, Error> {
    match lock {
        Lock::Free => Ok(take(Kind::Mutex, lease, now)),
        Lock::Held(holder) if holder.kind == Kind::Mutex && holder.has_identity(token) && !strict => {
            Ok(confirm(holder, lease, now))
        }
        Lock::Held(_) | Lock::Shared(_) => lock.check_form(token, Kind::Mutex).map(|()| Decision::Contended),
    }
}

/// Decides LOCK.SHARE: takes a share of the lock, or confirms that `token` has one already.
///
/// With `limit`, a share is granted only while fewer shares are held.
///
/// # Errors
///
/// [`Error::OtherForm`] if `token` holds the lock alone, and [`Error::InvalidExpire`] if the lease would end after
/// [`LATEST_SHARE_END`].
#[inline(always)]
pub fn share(
    lock: &Lock<'_, impl LeaseEnd>,
    token: &[u8],
    lease: Option<Lease>,
    limit: Option<Limit>,
    now: UnixMs,
) -> Result<Decision, Error> {
    lease.map_or(Ok(now), |lease| share_end(lease, now))?;
    match lock {
        Lock::Free => Ok(take(Kind::Shared, lease, now)),
        Lock::Shared(Shares { own: Some(own), .. }) => Ok(confirm(own, lease, now)),
        Lock::Shared(Shares { held, .. }) if limit.is_none_or(|limit| limit.has_capacity(*held)) => {
            Ok(take(Kind::Shared, lease, now))
        }
        Lock::Held(_) | Lock::Shared(_) => lock.check_form(token, Kind::Shared).map(|()| Decision::Contended),
    }
}

fn share_end(lease: Lease, start: UnixMs) -> Result<UnixMs, Error> {
    lease.checked_end_from(start).filter(|&end| end <= LATEST_SHARE_END).ok_or(Error::InvalidExpire)
}

/// Decides LOCK.REENTER: takes the re-entrant lock, or one more hold of it. The reply is the caller's number of holds.
///
/// With `hold`, the request is for the caller's n-th hold, and a hold that was taken before is confirmed.
///
/// # Errors
///
/// - [`Error::HoldMismatch`] if `hold` is neither the present number of holds nor the next one.
/// - [`Error::NotHeld`] or [`Error::NotOwner`] if `hold` is greater than 1 and the caller holds nothing.
/// - [`Error::OtherForm`] if `owner` holds a share.
/// - [`Error::Overflow`] if the number of holds is at its maximum.
#[inline(always)]
pub fn reenter(
    lock: &Lock<'_, impl LeaseEnd>,
    owner: &[u8],
    lease: Option<Lease>,
    hold: Option<HoldNumber>,
    now: UnixMs,
) -> Result<Decision, Error> {
    let hold = hold.map(HoldNumber::number);
    let first = hold.is_none_or(|hold| hold == 1);
    match lock {
        Lock::Free if first => Ok(take(Kind::Reentrant, lease, now)),
        Lock::Held(holder) if holder.kind == Kind::Reentrant && holder.has_identity(owner) => match hold {
            Some(hold) if hold == holder.holds => Ok(confirm(holder, lease, now)),
            Some(hold) if hold.checked_sub(1) != Some(holder.holds) => Err(Error::HoldMismatch),
            _ => {
                let holds = holder.holds.checked_add(1).ok_or(Error::Overflow)?;
                Ok(set_holds(holder, holds, lease, now))
            }
        },
        Lock::Held(_) | Lock::Shared(_) if lock.check_form(owner, Kind::Reentrant).is_err() => Err(Error::OtherForm),
        Lock::Held(_) | Lock::Shared(_) if first => Ok(Decision::Contended),
        // The request is for a later hold, but the earlier ones were lost.
        Lock::Free => Err(Error::NotHeld),
        Lock::Held(_) | Lock::Shared(_) => Err(Error::NotOwner),
    }
}

/// Decides LOCK.RELEASE: releases one hold. The reply is the number of remaining holds.
///
/// With `hold`, the request is to release the caller's n-th hold. If that was released before and an earlier hold remains, the
/// release is confirmed.
///
/// # Errors
///
/// - [`Error::NotHeld`] or [`Error::NotOwner`] if the caller does not hold the lock.
/// - [`Error::HoldMismatch`] if `hold` is neither the present number of holds nor the next one.
#[inline(always)]
pub fn release(
    lock: &Lock<'_, impl LeaseEnd>,
    caller: &[u8],
    lease: Option<Lease>,
    hold: Option<HoldNumber>,
    now: UnixMs,
) -> Result<Decision, Error> {
    let holder = lock.held_by(caller)?;
    match hold.map(HoldNumber::number) {
        Some(hold) if hold.checked_sub(1) == Some(holder.holds) => return Ok(confirm(holder, lease, now)),
        Some(hold) if hold != holder.holds => return Err(Error::HoldMismatch),
        _ => {}
    }
    Ok(match holder.holds {
        _ if holder.kind == Kind::Shared => Decision::Done { write: Write::RemoveShare, reply: 0 },
        ..=1 => Decision::Done { write: Write::Free, reply: 0 },
        more => set_holds(holder, more.saturating_sub(1), lease, now),
    })
}

/// Decides LOCK.EXTEND: sets the lease or, with `add`, adds to the remaining lease. The reply is the new remaining lease in
/// milliseconds.
///
/// # Errors
///
/// - [`Error::NotHeld`] or [`Error::NotOwner`] if the caller does not hold the lock.
/// - [`Error::NoLease`] if the lock has no lease.
/// - [`Error::InvalidExpire`] if the end of the lease would overflow, or the end of a share's lease would be after
///   [`LATEST_SHARE_END`].
#[inline(always)]
pub fn extend(
    lock: &Lock<'_, impl LeaseEnd>,
    caller: &[u8],
    lease: Lease,
    add: bool,
    now: UnixMs,
) -> Result<Decision, Error> {
    let holder = lock.held_by(caller)?;
    let present = holder.lease_end.get().ok_or(Error::NoLease)?;
    // In a script that runs beyond the end of the lease, the key still exists, and the remaining lease is 0.
    let start = if add { present.max(now) } else { now };
    let end = match holder.kind {
        Kind::Shared => share_end(lease, start)?,
        Kind::Mutex | Kind::Reentrant => lease.checked_end_from(start).ok_or(Error::InvalidExpire)?,
    };
    debug_assert!(end > now, "a lease ends before it begins");
    Ok(Decision::Done { write: Write::SetLease(end), reply: end.saturating_sub(now) })
}

fn take(kind: Kind, lease: Option<Lease>, now: UnixMs) -> Decision {
    let lease_end = lease.map(|lease| lease.end_from(now));
    debug_assert!(lease_end.is_none_or(|end| end > now), "a lease ends before it begins");
    Decision::Done { write: Write::Take { kind, lease_end }, reply: 1 }
}

/// Confirms a request that was granted before: only the lease may change. The reply is the number of holds.
fn confirm(holder: &Holder<'_, impl LeaseEnd>, lease: Option<Lease>, now: UnixMs) -> Decision {
    Decision::Done { write: Write::Confirm { lease_end: holder.lengthened(lease, now) }, reply: holder.holds }
}

fn set_holds(holder: &Holder<'_, impl LeaseEnd>, holds: i64, lease: Option<Lease>, now: UnixMs) -> Decision {
    debug_assert!(holder.kind == Kind::Reentrant, "only a re-entrant lock has several holds");
    debug_assert!(holds >= 1, "a holder keeps at least one hold");
    let lease_end = holder.lengthened(lease, now);
    Decision::Done { write: Write::SetHolds { holds, lease_end }, reply: holds }
}

#[cfg(test)]
mod tests;
