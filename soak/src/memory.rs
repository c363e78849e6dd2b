//! What the server says of its memory, and the module of what it remembers.

use std::time::Duration;

use support::{Client, Server, happens_within, info_lock};

/// A connection that looks at the server.
pub struct Memory(Client);

/// One look.
pub struct Sample {
    /// Since the beginning.
    pub at: Duration,
    /// How many requests there were until then.
    pub requests: u64,
    /// In bytes, as the allocator counts them.
    pub used: f64,
    /// In bytes, as the system counts them.
    pub resident: f64,
}

impl Memory {
    pub fn of(server: &Server) -> Self {
        Self(server.client())
    }

    pub fn sample(&mut self, at: Duration, requests: u64) -> Sample {
        let [used, resident] = ["used_memory", "used_memory_rss"].map(|name| {
            let bytes = self.0.info("memory", name).expect("a server that tells its memory");
            bytes.parse().expect("a number of bytes")
        });
        Sample { at, requests, used, resident }
    }

    /// Whether the module remembers nothing any more, once everybody has left.
    pub fn is_left_empty(&mut self) -> bool {
        ["waiters", "waiters_notified", "contended_locks", "sessions"]
            .iter()
            .all(|counter| happens_within(Duration::from_secs(10), || info_lock(&mut self.0, counter) == 0))
    }
}
