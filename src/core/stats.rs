//! Counters since the module was loaded, for `INFO lock`.

use super::OrBug;

/// The event that made a lock free, before it was granted to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// LOCK.RELEASE.
    Release,
    /// The end of the lease.
    Expiry,
    /// DEL and similar commands.
    Delete,
    /// The end of the holder's connection.
    Disconnect,
    /// RENAME, MOVE, eviction, FLUSHALL or a reload.
    Other,
}

/// The inclusive upper bounds of the wait-time buckets, in milliseconds. The last bucket has no bound and follows them.
pub const WAIT_BUCKETS_MS: [i64; 10] = [1, 2, 5, 10, 50, 100, 500, 1_000, 10_000, 60_000];

/// Counters, which only grow.
pub struct Stats {
    /// Locks granted to a request that found them free.
    pub granted_at_once: u64,
    /// Waits that timed out.
    pub timed_out: u64,
    /// Waits that ended because the client disconnected, was unblocked or withdrew.
    pub cancelled: u64,
    /// Requests of a caller that already held the lock or waited for it.
    pub resent: u64,
    /// Requests that ended in NOTOWNER.
    pub not_owner: u64,
    /// Writes that the server has refused to replicate.
    pub not_replicated: u64,
    /// Sessions whose lock was held on after their connection had closed.
    pub grace_periods: u64,
    handovers: [u64; Cause::ALL.len()],
    waits: [u64; WAIT_BUCKETS_MS.len() + 1],
}

impl Cause {
    /// All causes, in the order of their discriminants.
    pub const ALL: [Self; 5] = [Self::Release, Self::Expiry, Self::Delete, Self::Disconnect, Self::Other];

    /// Returns the name of the cause in `INFO lock`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Expiry => "expiry",
            Self::Delete => "delete",
            Self::Disconnect => "disconnect",
            Self::Other => "other",
        }
    }
}

impl Stats {
    pub const fn new() -> Self {
        Self {
            granted_at_once: 0,
            timed_out: 0,
            cancelled: 0,
            resent: 0,
            not_owner: 0,
            not_replicated: 0,
            grace_periods: 0,
            handovers: [0; Cause::ALL.len()],
            waits: [0; WAIT_BUCKETS_MS.len() + 1],
        }
    }

    /// Counts a lock that was granted to a waiter, `waited_ms` milliseconds after its request.
    pub fn record_handover(&mut self, cause: Cause, waited_ms: i64) {
        let bucket = WAIT_BUCKETS_MS.partition_point(|&bound| bound < waited_ms);
        self.handovers.get_mut(cause as usize).or_bug("a cause has no counter").into_iter().for_each(increment);
        self.waits.get_mut(bucket).or_bug("a wait has no bucket").into_iter().for_each(increment);
    }

    pub fn handovers(&self, cause: Cause) -> u64 {
        self.handovers.get(cause as usize).or_bug("a cause has no counter").copied().unwrap_or(0)
    }

    /// Returns the number of locks granted to a waiter.
    pub fn granted_after_waiting(&self) -> u64 {
        self.handovers.iter().sum()
    }

    /// Returns the number of waits that a grant ended within each bound of [`WAIT_BUCKETS_MS`], and last the number of all.
    pub fn waits_within(&self) -> impl Iterator<Item = u64> {
        self.waits.iter().scan(0u64, |total, &more| {
            *total = total.saturating_add(more);
            Some(*total)
        })
    }
}

/// Adds 1 to a counter. It stays at its maximum.
pub fn increment(total: &mut u64) {
    *total = total.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn buckets_are_cumulative_with_inclusive_bounds() {
        let mut stats = Stats::new();
        for waited_ms in [0, 1, 2, 60_000, 60_001] {
            stats.record_handover(Cause::Release, waited_ms);
        }
        let within: Vec<_> = stats.waits_within().collect();
        assert_eq!(within.first(), Some(&2));
        assert_eq!(within.get(1), Some(&3));
        assert_eq!(within.get(9), Some(&4));
        assert_eq!(within.last(), Some(&5));
        assert_eq!(stats.granted_after_waiting(), 5);
    }

    #[test]
    fn every_cause_has_its_own_total() {
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            let mut stats = Stats::new();
            stats.record_handover(cause, 0);
            assert_eq!(cause as usize, number);
            assert!(Cause::ALL.iter().all(|&other| stats.handovers(other) == u64::from(other == cause)));
        }
    }

    #[test]
    fn every_cause_has_its_own_name() {
        let names = Cause::ALL.map(Cause::name);
        assert!(names.iter().all(|name| !name.is_empty()));
        assert_eq!(names.into_iter().collect::<HashSet<_>>().len(), Cause::ALL.len());
    }
}
