//! One lock, one request, one decision: the rules of holding.
//!
//! Invariants: a decision never takes a lock from its holder; a lease that comes with ACQUIRE, REENTER or RELEASE never
//! shortens one and never gives one to a lock that has none; only EXTEND sets a lease exactly.

use std::borrow::Cow;
use std::num::NonZeroI64;

use super::{Error, MAX_DURATION_MS, UnixMs};

/// The two layouts a lock can have in the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A String whose value is the holder's token.
    Mutex,
    /// A Hash with one field, the owner, whose value is the number of holds.
    Reentrant,
}

/// What a key says about its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock<'k, L = Option<UnixMs>> {
    Free,
    Held(Holder<'k, L>),
}

/// The present holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder<'k, L = Option<UnixMs>> {
    pub kind: Kind,
    /// The token of a mutex or the owner of a re-entrant lock.
    pub owner: Cow<'k, [u8]>,
    /// At least 1; always 1 for a mutex.
    pub holds: i64,
    pub lease_end: L,
}

/// The end of a lease, or where to ask for it: most decisions can do without, and the question costs a look-up.
pub trait LeaseEnd {
    /// `None`: held until released.
    fn get(&self) -> Option<UnixMs>;
}

impl LeaseEnd for Option<UnixMs> {
    fn get(&self) -> Option<UnixMs> {
        *self
    }
}

/// The length of a lease, in milliseconds: 1 to [`MAX_DURATION_MS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(NonZeroI64);

/// The number of a hold as its owner counts, at least 1: what makes a request safe to send twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldNumber(NonZeroI64);

/// What to write for the caller, whose identity the host already has at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The request was granted before, and this is it again: nothing changes but, where given, the end of the lease.
    Confirm { lease_end: Option<UnixMs> },
    /// The key is free: make the caller its holder, with one hold.
    Take { kind: Kind, lease_end: Option<UnixMs> },
    /// The caller stays the holder, with another number of holds and, where given, a new end of the lease.
    SetHolds { holds: i64, lease_end: Option<UnixMs> },
    /// The caller stays the holder, with a new end of the lease.
    SetLease(UnixMs),
    /// The caller's last hold is gone: the next waiter takes the lock, or the key is deleted.
    Free,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do `write`, then answer the integer `reply`.
    Done { write: Write, reply: i64 },
    /// Somebody else holds it: answer nil, or wait.
    Contended,
}

impl Lease {
    /// A lease of `ms` milliseconds, or `None` outside 1 to [`MAX_DURATION_MS`].
    pub fn from_ms(ms: i64) -> Option<Self> {
        NonZeroI64::new(ms).filter(|_| (1..=MAX_DURATION_MS).contains(&ms)).map(Self)
    }

    /// When a lease that begins at `start` ends. `None` when that is beyond the calendar, which only a start in the
    /// far future can bring about.
    fn checked_end_from(self, start: UnixMs) -> Option<UnixMs> {
        start.checked_add(self.0.get())
    }

    /// When a third of a lease is over that begins at `now`; at least a millisecond.
    pub fn renewal_after(self, now: UnixMs) -> UnixMs {
        now.saturating_add(self.0.get().div_euclid(3).max(1))
    }

    /// When to try again to renew a lease that could not be renewed at `now`: within a third of it, and within 20 ms to
    /// a second, so that many leases that wait for the same thing are no burden.
    pub fn renewal_retry_after(self, now: UnixMs) -> UnixMs {
        now.saturating_add(self.0.get().div_euclid(12).clamp(20, 1000))
    }

    /// When a lease that is granted at `now` ends.
    pub fn end_from(self, now: UnixMs) -> UnixMs {
        now.saturating_add(self.0.get())
    }
}

impl HoldNumber {
    /// The hold with this number, or `None` below 1.
    pub fn from_number(number: i64) -> Option<Self> {
        NonZeroI64::new(number).filter(|_| number >= 1).map(Self)
    }

    fn number(self) -> i64 {
        self.0.get()
    }
}

impl<L: LeaseEnd> Holder<'_, L> {
    fn has_identity(&self, caller: &[u8]) -> bool {
        *self.owner == *caller
    }

    /// The end of the lease if `lease` would lengthen the present one.
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
    /// [`Error::NotHeld`] or [`Error::NotOwner`].
    pub fn held_by(&self, caller: &[u8]) -> Result<&Holder<'k, L>, Error> {
        match self {
            Self::Free => Err(Error::NotHeld),
            Self::Held(holder) if holder.has_identity(caller) => Ok(holder),
            Self::Held(_) => Err(Error::NotOwner),
        }
    }

    /// When the key expires, if it does.
    pub fn lease_end(&self) -> Option<UnixMs> {
        match self {
            Self::Free => None,
            Self::Held(holder) => holder.lease_end.get(),
        }
    }
}

/// LOCK.ACQUIRE: takes the mutex, or confirms that `token` has it already unless `strict` asks for a fresh grant.
pub fn acquire(
    lock: &Lock<'_, impl LeaseEnd>,
    token: &[u8],
    lease: Option<Lease>,
    strict: bool,
    now: UnixMs,
) -> Decision {
    match lock {
        Lock::Free => take(Kind::Mutex, lease, now),
        Lock::Held(holder) if holder.kind == Kind::Mutex && holder.has_identity(token) && !strict => {
            confirm(holder, lease, now)
        }
        Lock::Held(_) => Decision::Contended,
    }
}

/// LOCK.REENTER: takes the re-entrant lock, or one more hold of it. The reply is the caller's holds. With `hold` it is
/// the caller's n-th hold, and one that was taken already is confirmed.
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
        Lock::Held(_) if first => Ok(Decision::Contended),
        // A later hold makes no sense without the earlier ones, and those were lost.
        Lock::Free => Err(Error::NotHeld),
        Lock::Held(_) => Err(Error::NotOwner),
    }
}

/// LOCK.RELEASE: gives up one hold. The reply is the holds that remain. With `hold` it is the caller's n-th hold, and
/// one that was given up already is confirmed as long as an earlier one is left.
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
        ..=1 => Decision::Done { write: Write::Free, reply: 0 },
        more => set_holds(holder, more.saturating_sub(1), lease, now),
    })
}

/// LOCK.EXTEND: sets the lease, or with `add` lengthens what remains of it. The reply is the remaining lease in ms.
pub fn extend(
    lock: &Lock<'_, impl LeaseEnd>,
    caller: &[u8],
    lease: Lease,
    add: bool,
    now: UnixMs,
) -> Result<Decision, Error> {
    let present = lock.held_by(caller)?.lease_end.get().ok_or(Error::NoLease)?;
    // In a script that runs past the end of the lease the key is still there, with nothing left of the lease.
    let start = if add { present.max(now) } else { now };
    let end = lease.checked_end_from(start).ok_or(Error::InvalidExpire)?;
    Ok(Decision::Done { write: Write::SetLease(end), reply: end.saturating_sub(now) })
}

fn take(kind: Kind, lease: Option<Lease>, now: UnixMs) -> Decision {
    let lease_end = lease.map(|lease| lease.end_from(now));
    Decision::Done { write: Write::Take { kind, lease_end }, reply: 1 }
}

/// The request was granted before: nothing changes but the lease. The reply is the holds.
fn confirm(holder: &Holder<'_, impl LeaseEnd>, lease: Option<Lease>, now: UnixMs) -> Decision {
    Decision::Done { write: Write::Confirm { lease_end: holder.lengthened(lease, now) }, reply: holder.holds }
}

fn set_holds(holder: &Holder<'_, impl LeaseEnd>, holds: i64, lease: Option<Lease>, now: UnixMs) -> Decision {
    let lease_end = holder.lengthened(lease, now);
    Decision::Done { write: Write::SetHolds { holds, lease_end }, reply: holds }
}

#[cfg(test)]
mod tests;
