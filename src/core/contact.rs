//! Whether a master has heard of its replicas: one that has not may have been replaced.

/// How often the replicas are looked at, in milliseconds.
pub const LOOK_MS: i64 = 1000;

/// What `min-replicas-max-lag` is where the server does not tell, in seconds: its default.
pub const DEFAULT_LAG_S: i64 = 10;

/// What was seen of the replicas at the latest look.
#[derive(Debug)]
pub struct Contact {
    looked_at: Option<i64>,
    max_lag_s: i64,
    is_lost: bool,
}

impl Contact {
    pub const fn new() -> Self {
        Self { looked_at: None, max_lag_s: DEFAULT_LAG_S, is_lost: false }
    }

    /// Returns whether to look again, by a monotonic clock in milliseconds.
    pub fn is_due(&self, now_ms: i64) -> bool {
        self.looked_at.is_none_or(|looked_at| now_ms.saturating_sub(looked_at) >= LOOK_MS)
    }

    /// Records that `heard` replicas were heard of within `max_lag_s` seconds, and that `needed` have to be.
    ///
    /// As to the server, either setting is no condition at all if it is 0.
    pub fn look(&mut self, now_ms: i64, max_lag_s: i64, needed: i64, heard: i64) {
        let is_lost = max_lag_s > 0 && heard < needed;
        *self = Self { looked_at: Some(now_ms), max_lag_s, is_lost };
    }

    /// Returns for how long a replica may be silent, in milliseconds.
    pub fn max_lag_ms(&self) -> i64 {
        self.max_lag_s.saturating_mul(1000)
    }

    /// Returns whether there were fewer replicas than needed.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 50_000;

    #[test]
    fn replicas_are_looked_at_once_a_second() {
        let mut contact = Contact::new();
        assert!(contact.is_due(NOW));
        contact.look(NOW, 5, 2, 2);
        assert!(!contact.is_due(NOW + LOOK_MS - 1));
        assert!(contact.is_due(NOW + LOOK_MS));
        assert_eq!(contact.max_lag_ms(), 5000);
    }

    #[test]
    fn contact_is_lost_while_fewer_were_heard_than_needed() {
        let mut contact = Contact::new();
        assert!(!contact.is_lost());
        for (max_lag_s, needed, heard, is_lost) in
            [(1, 2, 1, true), (1, 2, 2, false), (1, 0, 0, false), (0, 2, 0, false)]
        {
            contact.look(NOW, max_lag_s, needed, heard);
            assert_eq!(contact.is_lost(), is_lost, "{heard} of {needed} within {max_lag_s} s");
        }
    }
}
