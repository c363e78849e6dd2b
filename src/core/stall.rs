//! Detects that the server's event loop has stalled.
//!
//! While a process stalls (a suspended machine, a slow script), replicas may be promoted and majorities lost. When it continues,
//! its first event-loop iteration runs all work that is due, before the server has noticed these changes. So after a stall the
//! module suspends its own writes for a while.

/// The shortest time between two event-loop iterations that counts as a stall, in milliseconds.
const STALL_MS: i64 = 1000;

/// The shortest suspension of writes after a stall, in milliseconds. The server checks its replicas and its cluster once a
/// second, in every tenth run of a cron that runs ten times a second and may be 100 ms late.
pub const MIN_SUSPENSION_MS: i64 = 1200;

/// The longest time between two calls of [`StallDetector::tick`], in milliseconds, while the detector is running.
pub const TICK_MS: i64 = 100;

/// Detects stalls of the event loop. All times are milliseconds of one monotonic clock.
///
/// While there is work, the module's timer ticks. Otherwise only the server's cron is recorded, at least once a second.
#[derive(Debug)]
pub struct StallDetector {
    /// Whether the timer ticks.
    is_running: bool,
    /// The time of the last recorded event-loop iteration.
    last_iteration: Option<i64>,
    /// The time between two runs of the server's cron.
    cron_interval_ms: i64,
    /// The time of the first iteration after the latest stall, plus the time since then that does not count.
    resumed_at: i64,
    suspension_ms: i64,
}

impl StallDetector {
    pub const fn new() -> Self {
        Self {
            is_running: false,
            last_iteration: None,
            cron_interval_ms: 0,
            resumed_at: i64::MIN,
            suspension_ms: MIN_SUSPENSION_MS,
        }
    }

    /// Sets the length of the suspension of writes after a stall, in milliseconds.
    pub fn set_suspension(&mut self, ms: i64) {
        debug_assert!(ms >= 0, "a suspension has a negative length");
        self.suspension_ms = ms;
    }

    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Records that the event loop runs its timers. The next tick is expected within [`TICK_MS`].
    pub fn tick(&mut self, now_ms: i64) {
        self.turn(now_ms);
        self.is_running = true;
    }

    /// Records that the server's cron runs, as it does every `interval_ms`.
    pub fn cron(&mut self, now_ms: i64, interval_ms: i64) {
        self.turn(now_ms);
        self.cron_interval_ms = interval_ms;
    }

    /// Records that no further tick is expected, because there is no work.
    pub fn stop(&mut self) {
        self.is_running = false;
    }

    fn turn(&mut self, now_ms: i64) {
        debug_assert!(self.last_iteration.is_none_or(|last| last <= now_ms), "the clock is monotonic");
        self.resumed_at = self.resumed_by(now_ms);
        self.last_iteration = Some(now_ms);
    }

    /// Returns the value of `resumed_at` for an iteration at `now_ms`.
    fn resumed_by(&self, now_ms: i64) -> i64 {
        let Some(last_iteration) = self.last_iteration else { return self.resumed_at };
        let gap = now_ms.saturating_sub(last_iteration);
        let without_stall = if self.is_running { TICK_MS } else { self.cron_interval_ms };
        if gap >= without_stall.saturating_mul(2).max(STALL_MS) {
            return now_ms;
        }
        // The server's cron counts its runs, so a longer iteration counts as one of normal length.
        let counts = !self.suspends_writes(last_iteration);
        let uncounted = if counts { 0 } else { gap.saturating_sub(TICK_MS).max(0) };
        self.resumed_at.saturating_add(uncounted)
    }

    /// Returns whether writes are suspended after a stall, because the state of the server may be out of date.
    pub fn suspends_writes(&self, now_ms: i64) -> bool {
        self.end_after(self.resumed_at) > now_ms
    }

    /// Returns the rest of the suspension of writes at `now_ms`, in milliseconds, or 0.
    ///
    /// The first command after a stall may run before the first recorded iteration, so this function detects the stall, too.
    pub fn suspended_ms(&self, now_ms: i64) -> i64 {
        self.end_after(self.resumed_by(now_ms)).saturating_sub(now_ms).max(0)
    }

    fn end_after(&self, resumed_at: i64) -> i64 {
        resumed_at.saturating_add(self.suspension_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 50_000;

    #[test]
    fn stall_suspends_writes_for_a_while() {
        let mut detector = StallDetector::new();
        detector.tick(NOW);
        detector.tick(NOW + STALL_MS);
        let thawed = NOW + STALL_MS;
        assert!(detector.suspends_writes(thawed));
        detector.tick(thawed + TICK_MS);
        assert!(detector.suspends_writes(thawed + MIN_SUSPENSION_MS - 1));
        assert!(!detector.suspends_writes(thawed + MIN_SUSPENSION_MS));
    }

    #[test]
    fn shorter_gap_is_no_stall() {
        let mut detector = StallDetector::new();
        for turn in 0..50 {
            detector.tick(NOW + turn * (STALL_MS - 1));
            assert!(!detector.suspends_writes(NOW + turn * (STALL_MS - 1)));
        }
    }

    #[test]
    fn gap_does_not_shorten_suspension() {
        let mut detector = StallDetector::new();
        detector.tick(NOW);
        let thawed = NOW + STALL_MS;
        detector.tick(thawed);
        detector.tick(thawed + TICK_MS + 500);
        assert!(detector.suspends_writes(thawed + MIN_SUSPENSION_MS + 499));
        assert!(!detector.suspends_writes(thawed + MIN_SUSPENSION_MS + 500));
    }

    #[test]
    fn stall_without_work_is_detected() {
        let mut detector = StallDetector::new();
        detector.cron(NOW, 100);
        detector.tick(NOW + STALL_MS);
        assert!(detector.is_running());
        assert!(detector.suspends_writes(NOW + STALL_MS));
        detector.stop();
        assert!(!detector.is_running());
        detector.cron(NOW + 10 * STALL_MS, 100);
        assert!(detector.suspends_writes(NOW + 10 * STALL_MS));
    }

    #[test]
    fn first_command_after_stall_detects_it() {
        let mut detector = StallDetector::new();
        assert_eq!(detector.suspended_ms(NOW), 0);
        detector.tick(NOW);
        assert_eq!(detector.suspended_ms(NOW + STALL_MS - 1), 0);
        detector.set_suspension(5000);
        assert_eq!(detector.suspended_ms(NOW + STALL_MS), 5000);
        detector.tick(NOW + STALL_MS);
        assert_eq!(detector.suspended_ms(NOW + STALL_MS + 100), 4900);
        detector.tick(NOW + STALL_MS + 100);
        assert!(detector.suspends_writes(NOW + STALL_MS + 4999));
        assert!(!detector.suspends_writes(NOW + STALL_MS + 5000));
        detector.set_suspension(MIN_SUSPENSION_MS);
        assert_eq!(detector.suspended_ms(NOW + STALL_MS + 200), MIN_SUSPENSION_MS - 200);
    }

    #[test]
    fn first_command_after_short_gap_sees_no_stall() {
        let mut detector = StallDetector::new();
        detector.tick(NOW);
        let thawed = NOW + STALL_MS;
        detector.tick(thawed);
        let before_its_end = thawed + MIN_SUSPENSION_MS - 100;
        detector.tick(before_its_end - TICK_MS);
        let suspended_ms = detector.suspended_ms(before_its_end + 500);
        assert!(suspended_ms > 0, "the suspension would have ended during the gap");
        detector.tick(before_its_end + 500);
        assert_eq!(detector.suspended_ms(before_its_end + 500), suspended_ms, "as the turn sees it");
    }

    #[test]
    fn later_gaps_do_not_extend_ended_suspension() {
        let mut detector = StallDetector::new();
        detector.tick(NOW);
        let thawed = NOW + STALL_MS;
        (0..=MIN_SUSPENSION_MS / TICK_MS).for_each(|turn| detector.tick(thawed + turn * TICK_MS));
        let settled = thawed + MIN_SUSPENSION_MS;
        (1..=10).for_each(|gap| detector.tick(settled + gap * 500));
        detector.set_suspension(4000);
        assert!(!detector.suspends_writes(settled + 5000), "one of 4 s would be over, too");
    }

    #[test]
    fn rare_cron_is_no_stall() {
        let mut detector = StallDetector::new();
        for run in 0..5 {
            detector.cron(NOW + run * STALL_MS, STALL_MS);
            assert!(!detector.suspends_writes(NOW + run * STALL_MS));
        }
        detector.tick(NOW + 6 * STALL_MS);
        assert!(detector.suspends_writes(NOW + 6 * STALL_MS));
    }

    #[test]
    fn first_iteration_is_no_stall() {
        let mut detector = StallDetector::new();
        detector.tick(NOW);
        assert!(!detector.suspends_writes(NOW));
    }
}
