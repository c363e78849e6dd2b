//! Whether the server's event loop has stood still.
//!
//! While a process stands still (a stopped machine, a slow script) the world goes on: replicas are promoted, majorities
//! are lost. When it runs again, its first loop round does what has become due meanwhile, before it has heard of any of
//! that. So after a standstill the module holds back for a while with what it does of its own accord.

/// A standstill of this many milliseconds or more may have changed the world.
const STALL_MS: i64 = 1000;

/// How many milliseconds the server is given to see the world: its own checks of replicas and cluster run once a
/// second, in a cron that may be a tenth of a second late.
const HOLD_OFF_MS: i64 = 1200;

/// How often, in milliseconds, [`StallDetector::tick`] must be called while the watch is on.
pub const TICK_MS: i64 = 100;

/// Watches the event loop while there is something to do. All times are milliseconds of one clock that is never set.
#[derive(Debug)]
pub struct StallDetector {
    /// When the loop was last seen to turn; `None` while the watch is off.
    last_tick: Option<i64>,
    hold_off_until: i64,
}

impl StallDetector {
    pub const fn new() -> Self {
        Self { last_tick: None, hold_off_until: i64::MIN }
    }

    pub fn is_running(&self) -> bool {
        self.last_tick.is_some()
    }

    /// The loop turns: it has come to its timers.
    pub fn tick(&mut self, now_ms: i64) {
        if let Some(last_tick) = self.last_tick.replace(now_ms) {
            let gap = now_ms.saturating_sub(last_tick);
            if gap >= STALL_MS {
                self.hold_off_until = now_ms.saturating_add(HOLD_OFF_MS);
            } else if self.is_holding_off(last_tick) {
                // The server sees nothing of the world in a shorter gap either.
                self.hold_off_until = self.hold_off_until.saturating_add(gap.saturating_sub(TICK_MS).max(0));
            }
        }
    }

    /// Ends the watch: there is nothing to do.
    pub fn stop(&mut self) {
        self.last_tick = None;
    }

    /// Whether the world may look otherwise than the server knows.
    pub fn is_holding_off(&self, now_ms: i64) -> bool {
        now_ms < self.hold_off_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 50_000;

    #[test]
    fn a_standstill_is_followed_by_a_time_to_settle() {
        let mut detector = StallDetector::new();
        detector.tick(NOW);
        detector.tick(NOW + STALL_MS);
        let thawed = NOW + STALL_MS;
        assert!(detector.is_holding_off(thawed));
        detector.tick(thawed + TICK_MS);
        assert!(detector.is_holding_off(thawed + HOLD_OFF_MS - 1));
        assert!(!detector.is_holding_off(thawed + HOLD_OFF_MS));
    }

    #[test]
    fn a_shorter_gap_changes_nothing() {
        let mut detector = StallDetector::new();
        for turn in 0..50 {
            detector.tick(NOW + turn * (STALL_MS - 1));
            assert!(!detector.is_holding_off(NOW + turn * (STALL_MS - 1)));
        }
    }

    #[test]
    fn a_gap_does_not_count_as_time_to_settle() {
        let mut detector = StallDetector::new();
        detector.tick(NOW);
        let thawed = NOW + STALL_MS;
        detector.tick(thawed);
        detector.tick(thawed + TICK_MS + 500);
        assert!(detector.is_holding_off(thawed + HOLD_OFF_MS + 499));
        assert!(!detector.is_holding_off(thawed + HOLD_OFF_MS + 500));
    }

    #[test]
    fn what_was_not_watched_is_no_standstill() {
        let mut detector = StallDetector::new();
        assert!(!detector.is_running());
        detector.tick(NOW);
        assert!(detector.is_running());
        detector.stop();
        detector.tick(NOW + 10 * STALL_MS);
        assert!(!detector.is_holding_off(NOW + 10 * STALL_MS));
    }
}
