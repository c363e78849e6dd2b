//! What the operator sets: `lock.*` in the configuration file and in CONFIG SET.

use crate::core::{MAX_DURATION_MS, UnixMs};
use crate::server::Setting;

/// How many requests may wait, over all locks. Each costs the server memory, see docs/operations.md.
pub static MAX_WAITERS: Setting = Setting::new(c"max-waiters", 100_000, 0, 10_000_000);

/// The longest wait in milliseconds, whatever BLOCK says; 0: no limit.
pub static MAX_BLOCK_MS: Setting = Setting::new(c"max-block-ms", 0, 0, MAX_DURATION_MS);

/// For how many milliseconds the place of a waiter is kept whose connection is lost or whose time is up; 0: not at all.
pub static REJOIN_GRACE_MS: Setting = Setting::new(c"rejoin-grace-ms", 10_000, 0, 86_400_000);

/// How many pairs of a connection and a lock that belongs to it, or shall, there may be. Each is renewed.
pub static MAX_SESSIONS: Setting = Setting::new(c"max-sessions", 100_000, 0, 10_000_000);

/// All settings.
pub const SETTINGS: &[&Setting] = &[&MAX_WAITERS, &MAX_BLOCK_MS, &REJOIN_GRACE_MS, &MAX_SESSIONS];

/// A setting that limits a number of things.
pub fn limit(setting: &Setting) -> usize {
    usize::try_from(setting.get()).unwrap_or(usize::MAX)
}

/// Until when the place of one who leaves at `now` is kept, if at all.
pub fn kept_until(now: UnixMs) -> Option<UnixMs> {
    let grace_ms = REJOIN_GRACE_MS.get();
    (grace_ms > 0).then(|| now.saturating_add(grace_ms))
}
