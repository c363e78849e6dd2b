//! Clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use super::UnixMs;

/// Returns the current Unix time in milliseconds, by the clock that the server uses for expiry.
pub fn now_ms() -> UnixMs {
    // SAFETY: the function takes nothing and reads the clock.
    unsafe { api!(RedisModule_Milliseconds()) }
}

/// Returns the time in milliseconds since the machine was started, by a monotonic clock that also counts while the machine is
/// suspended.
pub fn monotonic_ms() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one time into one time.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    debug_assert_eq!(result, 0, "the system has no clock that counts while the machine is suspended");
    // The sum overflows 292 million years after the start of the machine.
    now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec.div_euclid(1_000_000))
}

/// Returns the current Unix time in microseconds, by the same clock as [`now_ms`].
pub fn now_us() -> i64 {
    // A clock before 1970 counts as 1970, and one that overflows in the year 294,247 stops there.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
