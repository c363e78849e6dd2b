//! The server's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::core::UnixMs;

/// Now, in Unix milliseconds, by the clock that the server expires keys with.
pub fn now() -> UnixMs {
    // SAFETY: the function takes nothing and reads the clock.
    unsafe { api!(RedisModule_Milliseconds()) }
}

/// Now, in Unix microseconds, by the same clock.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
