//! The rules of holding: one lock, one request, one decision.
//!
//! Invariants: a decision never takes a lock from its holder. A lease that comes with ACQUIRE, REENTER or RELEASE never
//! shortens the present one, and never gives one to a lock that has none; only EXTEND sets a lease exactly.

use std::borrow::Cow;
use std::num::{NonZeroI64, NonZeroU32};

use super::{Error, MAX_DURATION_MS, UnixMs};

/// The kind of a lock, and so its layout in the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A String whose value is the holder's token.
    Mutex,
    /// A Hash with one field: its name is the owner, its value the number of holds.
    Reentrant,
    /// A Sorted Set of the holders' tokens, each with the end of its lease as score.
    Shared,
}

/// The state of a lock, as read from its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock<'k, L = Option<UnixMs>> {
    Free,
    /// Held by one holder alone.
    Held(Holder<'k, L>),
    /// Held by one or more shares.
    Shared(Shares<'k, L>),
}

/// The shares of a lock, as one caller sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares<'k, L = Option<UnixMs>> {
    /// The caller's own share, if it holds one.
    pub own: Option<Holder<'k, L>>,
    /// The number of shares that are held.
    pub held: usize,
    /// The end of the last lease.
    pub lease_end: L,
}

/// The present holder of a lock, or of a share of it.
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

/// The end of a lease, or a way to look it up. Most decisions do not need it, and a look-up costs a call of the server.
pub trait LeaseEnd {
    /// Returns the end of the lease, or `None` if the lock has no lease.
    fn get(&self) -> Option<UnixMs>;
}

impl LeaseEnd for Option<UnixMs> {
    fn get(&self) -> Option<UnixMs> {
        *self
    }
}

/// The length of a lease, from 1 to [`MAX_DURATION_MS`] milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(NonZeroI64);

/// The number of shares up to which one more is granted, from 1 to 2^31 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit(NonZeroU32);

/// The largest number of shares that a request can name as its limit.
pub const MAX_LIMIT: u32 = i32::MAX as u32;

/// The number of a hold, at least 1, as its owner counts. It makes a request safe to send twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldNumber(NonZeroI64);

/// What to write for the caller. The caller's identity is not part of it, because the host has it at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Nothing but, if given, a new end of the lease: the same request was granted before.
    Confirm { lease_end: Option<UnixMs> },
    /// Make the caller the holder, with one hold. The key is free, or has shares if the kind is [`Kind::Shared`].
    Take { kind: Kind, lease_end: Option<UnixMs> },
    /// Set the caller's number of holds and, if given, a new end of the lease. The caller stays the holder.
    SetHolds { holds: i64, lease_end: Option<UnixMs> },
    /// Set a new end of the lease. The caller stays the holder.
    SetLease(UnixMs),
    /// Grant the lock to the next waiter, or delete the key: the caller has given up its last hold.
    Free,
    /// Remove the caller's share, and grant what that makes room for.
    RemoveShare,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Carry out `write`, then reply with the integer `reply`.
    Done { write: Write, reply: i64 },
    /// Somebody else holds the lock: wait, or reply with nil.
    Contended,
}

impl Lease {
    /// Creates a lease of `ms` milliseconds. Returns `None` if `ms` is not in 1 to [`MAX_DURATION_MS`].
    pub fn from_ms(ms: i64) -> Option<Self> {
        NonZeroI64::new(ms).filter(|_| (1..=MAX_DURATION_MS).contains(&ms)).map(Self)
    }

    /// Returns the end of a lease that begins at `start`, or `None` on overflow, which needs a start in the far future.
    fn checked_end_from(self, start: UnixMs) -> Option<UnixMs> {
        start.checked_add(self.0.get())
    }

    /// Returns the time to renew a lease that was set at `now`: after a third of it, and after at least 1 ms.
    pub fn renewal_after(self, now: UnixMs) -> UnixMs {
        now.saturating_add(self.0.get().div_euclid(3).max(1))
    }

    /// Returns the time to renew a lease of this length that ends at `end`.
    pub fn renewal_before(self, end: UnixMs) -> UnixMs {
        self.renewal_after(end.saturating_sub(self.0.get()))
    }

    /// Returns the time to retry a renewal that failed at `now`: after a twelfth of the lease, but 20 ms to 1 s later.
    ///
    /// The bounds keep the load low when many leases wait for the same thing.
    pub fn renewal_retry_after(self, now: UnixMs) -> UnixMs {
        now.saturating_add(self.0.get().div_euclid(12).clamp(20, 1000))
    }

    /// Returns the end of a lease that begins at `now`.
    pub fn end_from(self, now: UnixMs) -> UnixMs {
        now.saturating_add(self.0.get())
    }

    /// Returns the end of a share's lease that begins at `now`, at most [`LATEST_SHARE_END`].
    pub fn share_end_from(self, now: UnixMs) -> UnixMs {
        self.end_from(now).min(LATEST_SHARE_END)
    }
}

impl Limit {
    /// Creates a limit. Returns `None` if `number` is not in 1 to 2^31 - 1.
    pub fn from_number(number: i64) -> Option<Self> {
        u32::try_from(number).ok().filter(|&number| number <= MAX_LIMIT).and_then(NonZeroU32::new).map(Self)
    }

    /// Returns the number of shares.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// Returns whether one more share may be held beside `held` others.
    pub fn has_capacity(self, held: usize) -> bool {
        u32::try_from(held).is_ok_and(|held| held < self.number())
    }
}

impl HoldNumber {
    /// Creates the number of a hold. Returns `None` if `number` is less than 1.
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

    /// Returns the end of `lease` if it begins at `now`, has an effect and lengthens the present one.
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
    /// [`Error::NotHeld`] if the lock is free, and [`Error::NotOwner`] if somebody else holds it.
    pub fn held_by(&self, caller: &[u8]) -> Result<&Holder<'k, L>, Error> {
        match self {
            Self::Free => Err(Error::NotHeld),
            Self::Held(holder) if holder.has_identity(caller) => Ok(holder),
            Self::Shared(Shares { own: Some(own), .. }) => Ok(own),
            Self::Held(_) | Self::Shared(_) => Err(Error::NotOwner),
        }
    }

    /// Checks that `caller` does not hold the lock in the other form, a share or alone: it would wait for itself.
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
/// With `strict` (option NX) a lock that `token` holds already is contended as well.
///
/// # Errors
///
/// [`Error::OtherForm`] if `token` holds a share.
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
/// With `limit` a share is granted only while fewer are held.
///
/// # Errors
///
/// [`Error::OtherForm`] if `token` holds the lock alone, and [`Error::InvalidExpire`] if the lease would end after
/// [`LATEST_SHARE_END`].
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

/// The latest end of a share's lease: a score of a Sorted Set holds integers up to 2^53 exactly.
pub const LATEST_SHARE_END: UnixMs = (1 << 53) - 1;

fn share_end(lease: Lease, start: UnixMs) -> Result<UnixMs, Error> {
    lease.checked_end_from(start).filter(|&end| end <= LATEST_SHARE_END).ok_or(Error::InvalidExpire)
}

/// Decides LOCK.REENTER: takes the re-entrant lock, or one more hold of it. The reply is the caller's number of holds.
///
/// With `hold` the request is for the caller's n-th hold, and a hold that was taken before is confirmed.
///
/// # Errors
///
/// - [`Error::HoldMismatch`] if `hold` is neither the present number of holds nor the next one.
/// - [`Error::NotHeld`] or [`Error::NotOwner`] if `hold` is greater than 1 and the caller holds nothing.
/// - [`Error::OtherForm`] if `owner` holds a share.
/// - [`Error::Overflow`] if the number of holds is at its maximum.
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
        // A later hold makes no sense without the earlier ones, and those were lost.
        Lock::Free => Err(Error::NotHeld),
        Lock::Held(_) | Lock::Shared(_) => Err(Error::NotOwner),
    }
}

/// Decides LOCK.RELEASE: gives up one hold. The reply is the number of holds that remain.
///
/// With `hold` the request is to release the caller's n-th hold. If that was released before and an earlier hold is
/// left, the release is confirmed.
///
/// # Errors
///
/// - [`Error::NotHeld`] or [`Error::NotOwner`] if the caller does not hold the lock.
/// - [`Error::HoldMismatch`] if `hold` is neither the present number of holds nor the next one.
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

/// Decides LOCK.EXTEND: sets the lease or, with `add`, adds to what remains of it. The reply is the remaining lease in
/// milliseconds.
///
/// # Errors
///
/// - [`Error::NotHeld`] or [`Error::NotOwner`] if the caller does not hold the lock.
/// - [`Error::NoLease`] if the lock has no lease.
/// - [`Error::InvalidExpire`] if the end of the lease would overflow, or that of a share would come after
///   [`LATEST_SHARE_END`].
pub fn extend(
    lock: &Lock<'_, impl LeaseEnd>,
    caller: &[u8],
    lease: Lease,
    add: bool,
    now: UnixMs,
) -> Result<Decision, Error> {
    let holder = lock.held_by(caller)?;
    let present = holder.lease_end.get().ok_or(Error::NoLease)?;
    // In a script that runs past the end of the lease the key is still there, with nothing left of the lease.
    let start = if add { present.max(now) } else { now };
    let end = match holder.kind {
        Kind::Shared => share_end(lease, start)?,
        Kind::Mutex | Kind::Reentrant => lease.checked_end_from(start).ok_or(Error::InvalidExpire)?,
    };
    Ok(Decision::Done { write: Write::SetLease(end), reply: end.saturating_sub(now) })
}

fn take(kind: Kind, lease: Option<Lease>, now: UnixMs) -> Decision {
    let lease_end = lease.map(|lease| lease.end_from(now));
    Decision::Done { write: Write::Take { kind, lease_end }, reply: 1 }
}

/// Confirms a request that was granted before: only the lease may change. The reply is the number of holds.
fn confirm(holder: &Holder<'_, impl LeaseEnd>, lease: Option<Lease>, now: UnixMs) -> Decision {
    Decision::Done { write: Write::Confirm { lease_end: holder.lengthened(lease, now) }, reply: holder.holds }
}

fn set_holds(holder: &Holder<'_, impl LeaseEnd>, holds: i64, lease: Option<Lease>, now: UnixMs) -> Decision {
    let lease_end = holder.lengthened(lease, now);
    Decision::Done { write: Write::SetHolds { holds, lease_end }, reply: holds }
}

#[cfg(test)]
mod tests;
