//! The times between retries of writes that the server refuses.

/// The shortest time until a retry, in milliseconds.
pub const RETRY_MS: i64 = 20;

/// The longest time until a retry, in milliseconds.
pub const MAX_RETRY_MS: i64 = 80;

/// The divisor of the time for which writes have been refused. The quotient is the time until the next retry.
const RETRY_PART: i64 = 8;

/// Consecutive refusals. All times are milliseconds of one monotonic clock.
pub struct BackOff {
    /// Whether a write was refused in this run of the background work.
    is_refused: bool,
    /// The time of the first refusal, if there was one.
    since: Option<i64>,
    /// The time of the next retry.
    until: i64,
}

impl BackOff {
    pub const fn new() -> Self {
        Self { is_refused: false, since: None, until: i64::MIN }
    }

    /// Begins a run of the background work. Returns whether it may try to write.
    pub fn begin_run(&mut self, now: i64) -> bool {
        self.is_refused = false;
        now >= self.until
    }

    /// Records a refusal. Nothing else is written in this run.
    pub fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Returns whether a write was refused in this run.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Records the end of a run that could not write, and sets the time of the next retry.
    pub fn back_off(&mut self, now: i64) {
        debug_assert!(self.since.is_none_or(|since| since <= now), "the clock is monotonic");
        if self.until <= now {
            // The end of an earlier refusal is not recorded if nothing was left to write.
            self.since = self.since.filter(|_| now.saturating_sub(self.until) <= MAX_RETRY_MS);
            let lasted_ms = now.saturating_sub(*self.since.get_or_insert(now));
            self.until = now.saturating_add(lasted_ms.div_euclid(RETRY_PART).clamp(RETRY_MS, MAX_RETRY_MS));
        }
        debug_assert!(self.until > now, "a retry is in the past");
    }

    /// Returns the time until the next retry, in milliseconds, or `None` if writes may be tried at any time. Asks `now` for the
    /// time if that matters.
    pub fn retry_ms(&self, now: impl FnOnce() -> i64) -> Option<i64> {
        (self.until != i64::MIN).then(|| self.until.saturating_sub(now()).max(0))
    }

    /// Returns whether writes are refused, as far as is known: the next retry is due, or was due a moment ago. A refusal is not
    /// ended if nothing is left to write.
    pub fn is_retrying(&self, now: i64) -> bool {
        self.until != i64::MIN && now.saturating_sub(self.until) <= MAX_RETRY_MS
    }

    /// Records the end of a run that could write.
    pub fn end(&mut self) {
        (self.since, self.until) = (None, i64::MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time until the next retry.
    fn back_off(refused: &mut BackOff, now: i64) -> i64 {
        refused.back_off(now);
        refused.retry_ms(|| now).unwrap()
    }

    #[test]
    fn retry_time_grows_with_refusals() {
        let mut refused = BackOff::new();
        let (mut now, mut retries) = (1_000, Vec::new());
        while now < 2_000 {
            assert!(refused.begin_run(now));
            refused.refuse();
            let retry_ms = back_off(&mut refused, now);
            assert!(!refused.begin_run(now + retry_ms - 1));
            assert_eq!(back_off(&mut refused, now + retry_ms - 1), 1);
            retries.push(retry_ms);
            now += retry_ms;
        }
        assert!(retries.is_sorted());
        assert_eq!((retries.first(), retries.last()), (Some(&RETRY_MS), Some(&MAX_RETRY_MS)));
        assert!(retries.len() < 30, "{retries:?}");
    }

    #[test]
    fn accepted_write_ends_back_off() {
        let mut refused = BackOff::new();
        refused.begin_run(0);
        refused.refuse();
        back_off(&mut refused, 0);
        assert!(refused.is_refused() && !refused.begin_run(5));
        refused.end();
        assert_eq!(refused.retry_ms(|| 5), None);
        assert!(refused.begin_run(5) && !refused.is_refused());
        assert!(!refused.is_retrying(5));
        assert_eq!(back_off(&mut refused, 5_000), RETRY_MS);
        assert!(refused.is_retrying(5_000) && !refused.is_retrying(9_000));
        assert_eq!(refused.retry_ms(|| 9_000), Some(0));
        assert_eq!(back_off(&mut refused, 500_000), RETRY_MS, "another refusal, long after the first");
    }
}
