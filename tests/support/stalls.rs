//! Stalls of the test machine: a thread that wants to run every few milliseconds notes how long it could not, and whether the clock
//! was set meanwhile.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::now_us;

/// From here on, what a test says of time is not evidence.
const STALL: Duration = Duration::from_millis(300);

const BEAT: Duration = Duration::from_millis(5);

static STALLS: Stalls = Stalls { count: AtomicU64::new(0), latest_ms: AtomicU64::new(0) };

struct Stalls {
    count: AtomicU64,
    latest_ms: AtomicU64,
}

/// A time in which stalls are looked for.
pub struct Watch {
    before: u64,
}

impl Watch {
    pub fn start() -> Self {
        static THREAD: OnceLock<()> = OnceLock::new();
        THREAD.get_or_init(|| drop(thread::spawn(watch)));
        Self { before: STALLS.count.load(Ordering::Acquire) }
    }

    /// Returns what stood still since the start, for the reader of a failure.
    pub fn stall(&self) -> Option<String> {
        // One that goes on is noted when it is over.
        thread::sleep(2 * BEAT);
        let is_calm = STALLS.count.load(Ordering::Acquire) == self.before;
        let latest = STALLS.latest_ms.load(Ordering::Acquire);
        (!is_calm).then(|| format!("the test machine stood still, or its clock was set, for {latest} ms"))
    }
}

fn watch() {
    loop {
        let (began, clock) = (Instant::now(), now_us());
        thread::sleep(BEAT);
        let late = late_by(began.elapsed(), now_us() - clock);
        if late >= STALL {
            STALLS.latest_ms.store(u64::try_from(late.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
            STALLS.count.fetch_add(1, Ordering::Release);
        }
    }
}

/// How much longer than a beat it took, or how far the clock moved beside it.
fn late_by(took: Duration, clock_us: i64) -> Duration {
    let took_us = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
    let moved = Duration::from_micros(clock_us.abs_diff(took_us));
    took.saturating_sub(BEAT).max(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_beat_and_set_clock_are_stalls() {
        let ms = Duration::from_millis;
        assert!(late_by(ms(9), 9_000) < STALL);
        assert_eq!(late_by(ms(405), 405_000), ms(400));
        assert_eq!(late_by(ms(5), -2_995_000), ms(3_000));
        assert_eq!(late_by(ms(5), 1_005_000), ms(1_000));
    }
}
