//! Clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use super::UnixMs;

/// Returns the current Unix time in milliseconds, by the clock that the server uses for expiry.
pub fn now_ms() -> UnixMs {
    // SAFETY: the function takes nothing and reads the clock.
    unsafe { api!(RedisModule_Milliseconds()) }
}

/// Returns the milliseconds of a monotonic clock that also counts while the machine is suspended.
pub fn monotonic_ms() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one time into one time; with this clock it does not fail.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec.div_euclid(1_000_000))
}

/// Returns the current Unix time in microseconds, by the same clock as [`now_ms`].
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
