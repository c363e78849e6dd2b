//! The checked arguments of requests: leases, times to wait, limits and hold numbers.

use std::num::{NonZeroI64, NonZeroU32};

use crate::core::{MAX_DURATION_MS, UnixMs};

/// The length of a lease, from 1 to [`MAX_DURATION_MS`] milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(NonZeroI64);

/// The terms of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    /// The lease to renew.
    pub lease: Lease,
    /// How long the lock is held after the last connection has closed, if it is not released immediately.
    pub grace: Option<Lease>,
}

/// A maximum number of shares or waiters, from 1 to 2^31 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit(NonZeroU32);

/// The largest number of shares that a request can name as its limit.
pub const MAX_LIMIT: u32 = i32::MAX as u32;

/// The latest end of a share's lease. The score of a Sorted Set is exact for integers up to 2^53.
pub const LATEST_SHARE_END: UnixMs = (1 << 53) - 1;

/// The time that a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockTimeout {
    Forever,
    /// A number of milliseconds, 1 to [`MAX_DURATION_MS`].
    Ms(i64),
}

/// The number of a hold, counted by its owner from 1. It makes a request safe to send twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldNumber(NonZeroI64);

impl Lease {
    /// Creates a lease of `ms` milliseconds. Returns `None` if `ms` is not in 1 to [`MAX_DURATION_MS`].
    pub fn from_ms(ms: i64) -> Option<Self> {
        NonZeroI64::new(ms).filter(|_| (1..=MAX_DURATION_MS).contains(&ms)).map(Self)
    }

    /// Returns a lease of at least `ms` milliseconds, up to [`MAX_DURATION_MS`].
    pub(crate) fn at_least_ms(self, ms: i64) -> Self {
        Self::from_ms(ms).map_or(self, |least| self.max(least))
    }

    /// Returns the end of a lease that begins at `start`, or `None` on overflow.
    pub(super) fn checked_end_from(self, start: UnixMs) -> Option<UnixMs> {
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
    /// The bounds limit the load when many renewals fail for the same reason.
    pub fn renewal_retry_after(self, now: UnixMs) -> UnixMs {
        now.saturating_add(self.0.get().div_euclid(12).clamp(20, 1000))
    }

    /// Returns the end of a lease that begins at `now`. See [`MAX_DURATION_MS`] why it does not overflow.
    pub fn end_from(self, now: UnixMs) -> UnixMs {
        debug_assert!(now <= MAX_DURATION_MS, "the clock is beyond its range");
        now.saturating_add(self.0.get())
    }

    /// Returns the end of a share's lease that begins at `now`, at most [`LATEST_SHARE_END`].
    pub fn share_end_from(self, now: UnixMs) -> UnixMs {
        self.end_from(now).min(LATEST_SHARE_END)
    }
}

impl BlockTimeout {
    /// Returns the deadline of a wait that begins at `now`, or `None` to wait forever. The wait is at most `limit_ms`
    /// milliseconds, or unlimited if that is 0.
    pub fn deadline(self, now: UnixMs, limit_ms: i64) -> Option<UnixMs> {
        let wait_ms = match (self, limit_ms) {
            (Self::Forever, ..=0) => return None,
            (Self::Forever, limit) => limit,
            (Self::Ms(ms), ..=0) => ms,
            (Self::Ms(ms), limit) => ms.min(limit),
        };
        Some(now.saturating_add(wait_ms))
    }
}

impl Limit {
    /// Creates a limit. Returns `None` if `number` is not in 1 to 2^31 - 1.
    pub fn from_number(number: i64) -> Option<Self> {
        u32::try_from(number).ok().filter(|&number| number <= MAX_LIMIT).and_then(NonZeroU32::new).map(Self)
    }

    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// Returns whether one more share may be held in addition to `held` others.
    pub fn has_capacity(self, held: usize) -> bool {
        u32::try_from(held).is_ok_and(|held| held < self.number())
    }
}

impl HoldNumber {
    /// Creates the number of a hold. Returns `None` if `number` is less than 1.
    pub fn from_number(number: i64) -> Option<Self> {
        NonZeroI64::new(number).filter(|_| number >= 1).map(Self)
    }

    pub(super) fn number(self) -> i64 {
        self.0.get()
    }
}
