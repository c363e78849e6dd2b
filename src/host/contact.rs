//! Whether a master has heard of its replicas: one that has not may have been replaced.
//!
//! The server looks at them itself, for `min-replicas-to-write`, but once in so many rounds of its cron: while commands hold
//! up the loop, only every ten seconds, say. The module looks by the clock.

use super::state::{self, Context};
use crate::server;

/// How often the module looks, in milliseconds.
pub const LOOK_MS: i64 = 1000;

/// What `min-replicas-max-lag` is where the server does not tell, in seconds: its default.
const DEFAULT_LAG_S: i64 = 10;

/// What was seen of the replicas at the latest look.
#[derive(Debug)]
pub struct Contact {
    looked_at: Option<i64>,
    /// The server's `min-replicas-max-lag`, in seconds.
    max_lag_s: i64,
    /// Whether there are fewer replicas than `min-replicas-to-write`.
    is_lost: bool,
}

impl Contact {
    pub const fn new() -> Self {
        Self { looked_at: None, max_lag_s: DEFAULT_LAG_S, is_lost: false }
    }

    /// Returns for how long a replica may be silent, in milliseconds.
    pub fn max_lag_ms(&self) -> i64 {
        self.max_lag_s.saturating_mul(1000)
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}

/// Looks at the replicas, if that is due. Where CONFIG has another name, nothing is known of how many are needed.
pub fn look(ctx: &mut Context<'_>) {
    planted!(LagIsUnseen => return);
    let now = server::monotonic_ms();
    if state::with(|state| state.contact.looked_at.is_some_and(|looked_at| now.saturating_sub(looked_at) < LOOK_MS)) {
        return;
    }
    let max_lag_s = server::server_setting(c"min-replicas-max-lag").unwrap_or(DEFAULT_LAG_S);
    let needed = server::server_setting(c"min-replicas-to-write").unwrap_or(0);
    // The server takes either 0 for no condition at all.
    let is_lost = needed > 0 && max_lag_s > 0 && ctx.replicas_heard_within(max_lag_s) < needed;
    state::with(|state| state.contact = Contact { looked_at: Some(now), max_lag_s, is_lost });
}
