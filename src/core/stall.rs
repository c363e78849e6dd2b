//! Detects that the server's event loop has stalled.
//!
//! While a process stands still (a suspended machine, a slow script), replicas are promoted and majorities are lost.
//! When it goes on, the first round of its loop does what became due meanwhile, before the server has noticed any of
//! that. So after a stall the module holds off its own writes for a while.

/// The shortest gap between two rounds of the loop, in milliseconds, that counts as a stall.
const STALL_MS: i64 = 1000;

/// How long writes are held off after a stall, in milliseconds. The server checks its replicas and cluster once a
/// second, which is every ten rounds of a cron that runs ten times a second, and may be 100 ms late.
const HOLD_OFF_MS: i64 = 1200;

/// The longest time between two calls of [`StallDetector::tick`], in milliseconds, while the detector is running.
pub const TICK_MS: i64 = 100;

/// Detects stalls of the event loop while there is work to do. All times are milliseconds of one monotonic clock.
#[derive(Debug)]
pub struct StallDetector {
    /// The time of the last tick, or `None` while the detector is stopped.
    last_tick: Option<i64>,
    hold_off_until: i64,
}

impl StallDetector {
    pub const fn new() -> Self {
        Self { last_tick: None, hold_off_until: i64::MIN }
    }

    /// Returns whether the detector is running.
    pub fn is_running(&self) -> bool {
        self.last_tick.is_some()
    }

    /// Records that the event loop runs its timers, and starts the detector if it was stopped.
    pub fn tick(&mut self, now_ms: i64) {
        if let Some(last_tick) = self.last_tick.replace(now_ms) {
            let gap = now_ms.saturating_sub(last_tick);
            if gap >= STALL_MS {
                self.hold_off_until = now_ms.saturating_add(HOLD_OFF_MS);
            } else if self.is_holding_off(last_tick) && !planted!(SettlingIsShort) {
                // The server's cron counts its rounds: a longer one counts no more.
                self.hold_off_until = self.hold_off_until.saturating_add(gap.saturating_sub(TICK_MS).max(0));
            }
        }
    }

    /// Stops the detector, because there is no work to do.
    pub fn stop(&mut self) {
        self.last_tick = None;
    }

    /// Returns whether a stall has ended only just: what the server knows may be out of date.
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
