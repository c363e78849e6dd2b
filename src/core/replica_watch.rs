//! Watches whether enough replicas respond to a master. If they do not, another server may be the master.

/// The time between two checks of the replicas, in milliseconds.
pub const REPLICA_CHECK_MS: i64 = 1000;

/// The value of `min-replicas-max-lag` that is used if the module cannot read it, in seconds. It is the server's default.
pub const DEFAULT_LAG_S: i64 = 10;

/// The result of the latest check of the replicas.
#[derive(Debug)]
pub struct ReplicaWatch {
    checked_at: Option<i64>,
    max_lag_s: i64,
    lacks_replicas: bool,
}

impl ReplicaWatch {
    pub const fn new() -> Self {
        Self { checked_at: None, max_lag_s: DEFAULT_LAG_S, lacks_replicas: false }
    }

    /// Returns whether the next check is due. `now_ms` is the time of a monotonic clock in milliseconds.
    pub fn is_due(&self, now_ms: i64) -> bool {
        self.checked_at.is_none_or(|checked_at| now_ms.saturating_sub(checked_at) >= REPLICA_CHECK_MS)
    }

    /// Records that `responding` replicas have responded within `max_lag_s` seconds, and that `needed` are required.
    ///
    /// As in the server, there is no condition if either setting is 0.
    pub fn record_check(&mut self, now_ms: i64, max_lag_s: i64, needed: i64, responding: i64) {
        debug_assert!(self.checked_at.is_none_or(|checked_at| checked_at <= now_ms), "the clock is monotonic");
        let lacks_replicas = max_lag_s > 0 && responding < needed;
        *self = Self { checked_at: Some(now_ms), max_lag_s, lacks_replicas };
    }

    /// Returns the longest time without a response of a replica, in milliseconds.
    pub fn max_lag_ms(&self) -> i64 {
        self.max_lag_s.saturating_mul(1000)
    }

    /// Returns whether fewer replicas than needed have responded.
    pub fn lacks_replicas(&self) -> bool {
        self.lacks_replicas
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 50_000;

    #[test]
    fn replicas_are_checked_once_a_second() {
        let mut replica_watch = ReplicaWatch::new();
        assert!(replica_watch.is_due(NOW));
        replica_watch.record_check(NOW, 5, 2, 2);
        assert!(!replica_watch.is_due(NOW + REPLICA_CHECK_MS - 1));
        assert!(replica_watch.is_due(NOW + REPLICA_CHECK_MS));
        assert_eq!(replica_watch.max_lag_ms(), 5000);
    }

    #[test]
    fn too_few_responding_replicas_are_reported() {
        let mut replica_watch = ReplicaWatch::new();
        assert!(!replica_watch.lacks_replicas());
        for (max_lag_s, needed, responding, lacks_replicas) in
            [(1, 2, 1, true), (1, 2, 2, false), (1, 0, 0, false), (0, 2, 0, false)]
        {
            replica_watch.record_check(NOW, max_lag_s, needed, responding);
            assert_eq!(replica_watch.lacks_replicas(), lacks_replicas, "{responding} of {needed} within {max_lag_s} s");
        }
    }
}
