//! Whether the server's event loop has stood still.
//!
//! While a process stands still (a stopped machine, a slow script) the world goes on: replicas are promoted, majorities
//! are lost. When it runs again, its first loop round does what has become due meanwhile, before it has heard of any of
//! that. So after a standstill the module holds back for a while with what it does of its own accord.

/// A standstill of this many milliseconds or more may have changed the world.
const STANDSTILL_MS: i64 = 1000;

/// How many milliseconds the server is given to see the world: its own checks of replicas and cluster run once a
/// second, in a cron that may be a tenth of a second late.
const SETTLING_MS: i64 = 1200;

/// How often, in milliseconds, [`StallWatch::turned`] must be called while the watch is on.
pub const PULSE_MS: i64 = 100;

/// Watches the event loop while there is something to do. All times are milliseconds of one clock that is never set.
#[derive(Debug)]
pub struct StallWatch {
    /// When the loop was last seen to turn; `None` while the watch is off.
    turned_at: Option<i64>,
    settled_at: i64,
}

impl StallWatch {
    pub const fn new() -> Self {
        Self { turned_at: None, settled_at: i64::MIN }
    }

    pub fn is_on(&self) -> bool {
        self.turned_at.is_some()
    }

    /// The loop turns: it has come to its timers.
    pub fn turned(&mut self, now_ms: i64) {
        if let Some(turned_at) = self.turned_at.replace(now_ms) {
            let gap = now_ms.saturating_sub(turned_at);
            if gap >= STANDSTILL_MS {
                self.settled_at = now_ms.saturating_add(SETTLING_MS);
            } else if self.is_unsettled(turned_at) {
                // The server sees nothing of the world in a shorter gap either.
                self.settled_at = self.settled_at.saturating_add(gap.saturating_sub(PULSE_MS).max(0));
            }
        }
    }

    /// Ends the watch: there is nothing to do.
    pub fn end(&mut self) {
        self.turned_at = None;
    }

    /// Whether the world may look otherwise than the server knows.
    pub fn is_unsettled(&self, now_ms: i64) -> bool {
        now_ms < self.settled_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 50_000;

    #[test]
    fn a_standstill_is_followed_by_a_time_to_settle() {
        let mut watch = StallWatch::new();
        watch.turned(NOW);
        watch.turned(NOW + STANDSTILL_MS);
        let thawed = NOW + STANDSTILL_MS;
        assert!(watch.is_unsettled(thawed));
        watch.turned(thawed + PULSE_MS);
        assert!(watch.is_unsettled(thawed + SETTLING_MS - 1));
        assert!(!watch.is_unsettled(thawed + SETTLING_MS));
    }

    #[test]
    fn a_shorter_gap_changes_nothing() {
        let mut watch = StallWatch::new();
        for turn in 0..50 {
            watch.turned(NOW + turn * (STANDSTILL_MS - 1));
            assert!(!watch.is_unsettled(NOW + turn * (STANDSTILL_MS - 1)));
        }
    }

    #[test]
    fn a_gap_does_not_count_as_time_to_settle() {
        let mut watch = StallWatch::new();
        watch.turned(NOW);
        let thawed = NOW + STANDSTILL_MS;
        watch.turned(thawed);
        watch.turned(thawed + PULSE_MS + 500);
        assert!(watch.is_unsettled(thawed + SETTLING_MS + 499));
        assert!(!watch.is_unsettled(thawed + SETTLING_MS + 500));
    }

    #[test]
    fn what_was_not_watched_is_no_standstill() {
        let mut watch = StallWatch::new();
        assert!(!watch.is_on());
        watch.turned(NOW);
        assert!(watch.is_on());
        watch.end();
        watch.turned(NOW + 10 * STANDSTILL_MS);
        assert!(!watch.is_unsettled(NOW + 10 * STANDSTILL_MS));
    }
}
