//! The server's clock.

use crate::core::UnixMs;

/// Now, in Unix milliseconds, by the clock that the server expires keys with.
pub fn now() -> UnixMs {
    // SAFETY: the function takes nothing and reads the clock.
    unsafe { api!(RedisModule_Milliseconds()) }
}
