//! The settings: `lock.*` in the configuration file and in CONFIG SET.

use crate::core::{EndReason, Lease, MAX_DURATION_MS, SlowLogLimits, UnixMs, WaitEnd};
use crate::server::Setting;

/// The maximum number of requests that wait, over all locks. Each needs memory, see docs/operations.md.
pub static MAX_WAITERS: Setting = Setting::new(c"max-waiters", 100_000, 0, 10_000_000);

/// The longest wait, in milliseconds, whatever BLOCK says. 0 means no limit.
pub static MAX_BLOCK_MS: Setting = Setting::new(c"max-block-ms", 0, 0, MAX_DURATION_MS);

/// The grace period, in milliseconds: how long the queue entry of a waiter is kept after it disconnected or timed out. 0 means
/// that it is not kept.
pub static REJOIN_GRACE_MS: Setting = Setting::new(c"rejoin-grace-ms", 10_000, 0, 86_400_000);

/// The maximum number of pairs of a connection and a lock in its session, including those that wait for the lock.
pub static MAX_SESSIONS: Setting = Setting::new(c"max-sessions", 100_000, 0, 10_000_000);

/// The longest lease, in milliseconds. If it is set, every lock needs a lease. 0 means no limit.
pub static MAX_LEASE_MS: Setting = Setting::new(c"max-lease-ms", 0, 0, MAX_DURATION_MS);

/// The length of the recovery period, in milliseconds. 0 means that there is none.
pub static RECOVERY_MS: Setting = Setting::new(c"recovery-ms", 0, 0, MAX_DURATION_MS);

/// Whether a lock that becomes free wakes the waiters of compatible lock libraries.
pub static WAKE_FOREIGN: Setting = Setting::switch(c"wake-foreign");

/// The shortest wait that the slow log keeps, in milliseconds. 0 means that it keeps every wait.
pub static SLOWLOG_MS: Setting = Setting::new(c"slowlog-ms", 1000, 0, MAX_DURATION_MS);

/// The maximum number of entries of the slow log. 0 means that there is no log. One reply has all entries.
pub static SLOWLOG_MAX_LEN: Setting = Setting::new(c"slowlog-max-len", 128, 0, 10_000);

/// All settings.
pub static SETTINGS: &[&Setting] = &[
    &MAX_WAITERS,
    &MAX_BLOCK_MS,
    &REJOIN_GRACE_MS,
    &MAX_SESSIONS,
    &MAX_LEASE_MS,
    &RECOVERY_MS,
    &WAKE_FOREIGN,
    &SLOWLOG_MS,
    &SLOWLOG_MAX_LEN,
];

/// Returns the value of a setting that limits a number of entries.
pub fn limit(setting: &Setting) -> usize {
    // On 32 bits a larger value is no limit.
    usize::try_from(setting.get()).unwrap_or(usize::MAX)
}

/// Returns the longest lease that a lock may have, or `None` if there is no limit.
pub fn longest_lease() -> Option<Lease> {
    Lease::from_ms(MAX_LEASE_MS.get())
}

/// Returns a lease, cut to the longest lease that a lock may have now. The limit may have changed since the request.
pub fn cut(lease: Lease) -> Lease {
    longest_lease().map_or(lease, |longest| lease.min(longest))
}

/// Returns the end of the grace period of a session, which may have been asked for before `lock.max-lease-ms` was lowered.
pub fn cut_end(end: UnixMs, now: UnixMs) -> UnixMs {
    longest_lease().map_or(end, |longest| end.min(longest.end_from(now)))
}

/// Returns the end of the grace period of a queue entry that becomes detached at `now`, or `None` if the entry is not kept.
pub fn kept_until(now: UnixMs) -> Option<UnixMs> {
    let grace_ms = REJOIN_GRACE_MS.get();
    (grace_ms > 0).then(|| now.saturating_add(grace_ms))
}

/// Returns the end of a wait for this reason at `now`, with the limits of the slow log.
pub fn wait_end(reason: EndReason, now: UnixMs) -> WaitEnd {
    let limits = SlowLogLimits { min_wait_ms: SLOWLOG_MS.get(), max_len: limit(&SLOWLOG_MAX_LEN) };
    WaitEnd { reason, now, limits }
}
