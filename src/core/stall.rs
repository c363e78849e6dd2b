//! Detects that the server's event loop has stalled.
//!
//! While a process stands still (a suspended machine, a slow script), replicas are promoted and majorities are lost.
//! When it goes on, the first round of its loop does what became due meanwhile, before the server has noticed any of
//! that. So after a stall the module holds off its own writes for a while.

/// The shortest gap between two rounds of the loop, in milliseconds, that counts as a stall.
const STALL_MS: i64 = 1000;

/// How long writes are held off after a stall at least, in milliseconds. The server checks its replicas and cluster once
/// a second, which is every ten rounds of a cron that runs ten times a second, and may be 100 ms late.
pub const MIN_SUSPENSION_MS: i64 = 1200;

/// The longest time between two calls of [`StallDetector::tick`], in milliseconds, while the detector is running.
pub const TICK_MS: i64 = 100;

/// Detects stalls of the event loop. All times are milliseconds of one monotonic clock.
///
/// While there is work, the module's own timer ticks. While there is none, only the server's cron is seen, which may be
/// set to run as rarely as once a second.
#[derive(Debug)]
pub struct StallDetector {
    /// Whether the timer ticks.
    is_running: bool,
    /// The time when the loop was last seen to turn.
    last_iteration: Option<i64>,
    /// The time between two runs of the server's cron.
    cron_interval_ms: i64,
    /// When the loop turned again after the latest stall, or later by what does not count of the time since then.
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

    /// Sets how long writes are held off after a stall, in milliseconds.
    pub fn set_suspension(&mut self, ms: i64) {
        self.suspension_ms = ms;
    }

    /// Returns whether the timer is to tick.
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Records that the event loop runs its timers, and expects the next tick in [`TICK_MS`] or sooner.
    pub fn tick(&mut self, now_ms: i64) {
        self.turn(now_ms);
        self.is_running = true;
    }

    /// Records that the server's cron runs, as it does every `interval_ms`.
    pub fn cron(&mut self, now_ms: i64, interval_ms: i64) {
        self.turn(now_ms);
        self.cron_interval_ms = interval_ms;
    }

    /// Expects no tick any more, because there is no work to do.
    pub fn stop(&mut self) {
        self.is_running = false;
    }

    fn turn(&mut self, now_ms: i64) {
        self.resumed_at = self.resumed_by(now_ms);
        self.last_iteration = Some(now_ms);
    }

    /// Returns what `resumed_at` is when the loop turns at `now_ms`.
    fn resumed_by(&self, now_ms: i64) -> i64 {
        let Some(last_iteration) = self.last_iteration else { return self.resumed_at };
        let gap = now_ms.saturating_sub(last_iteration);
        if self.is_stall(gap) {
            return now_ms;
        }
        // The server's cron counts its rounds: a longer one counts no more.
        let counts = !self.suspends_writes(last_iteration);
        let uncounted = if counts { 0 } else { gap.saturating_sub(TICK_MS).max(0) };
        self.resumed_at.saturating_add(uncounted)
    }

    /// Returns whether a gap between two rounds of the loop is a stall.
    fn is_stall(&self, gap_ms: i64) -> bool {
        let without_stall = if self.is_running { TICK_MS } else { self.cron_interval_ms };
        gap_ms >= without_stall.saturating_mul(2).max(STALL_MS)
    }

    /// Returns whether a stall has ended only just: what the server knows may be out of date.
    pub fn suspends_writes(&self, now_ms: i64) -> bool {
        self.end_after(self.resumed_at) > now_ms
    }

    /// Returns for how long writes are held off from `now_ms` on, in milliseconds, or 0.
    ///
    /// The first command after a stall, or a shorter gap, may come before the first turn: then it is seen here.
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
    fn a_shorter_gap_changes_nothing() {
        let mut detector = StallDetector::new();
        for turn in 0..50 {
            detector.tick(NOW + turn * (STALL_MS - 1));
            assert!(!detector.suspends_writes(NOW + turn * (STALL_MS - 1)));
        }
    }

    #[test]
    fn a_gap_does_not_count_as_time_to_settle() {
        let mut detector = StallDetector::new();
        detector.tick(NOW);
        let thawed = NOW + STALL_MS;
        detector.tick(thawed);
        detector.tick(thawed + TICK_MS + 500);
        assert!(detector.suspends_writes(thawed + MIN_SUSPENSION_MS + 499));
        assert!(!detector.suspends_writes(thawed + MIN_SUSPENSION_MS + 500));
    }

    #[test]
    fn a_stall_is_seen_while_there_is_nothing_to_do() {
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
        assert!(suspended_ms > 0, "the time was to end in the gap");
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
    fn a_cron_that_runs_rarely_is_no_stall() {
        let mut detector = StallDetector::new();
        for run in 0..5 {
            detector.cron(NOW + run * STALL_MS, STALL_MS);
            assert!(!detector.suspends_writes(NOW + run * STALL_MS));
        }
        detector.tick(NOW + 6 * STALL_MS);
        assert!(detector.suspends_writes(NOW + 6 * STALL_MS));
    }

    #[test]
    fn there_is_no_stall_before_the_first_turn() {
        let mut detector = StallDetector::new();
        detector.tick(NOW);
        assert!(!detector.suspends_writes(NOW));
    }
}
