//! Stalls of the test machine: a thread that wants to run every few milliseconds notes how long it could not, and whether the clock
//! was set.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::now_us;

/// From here on, what a test says of time is not evidence.
const STALL: Duration = Duration::from_millis(300);

/// How long servers remember a stall: `min-replicas-max-lag` and 3 s by default, and a second for their crons.
const MEMORY: Duration = Duration::from_secs(14);

const BEAT: Duration = Duration::from_millis(5);

/// The end and the length of the latest stall.
static LATEST: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);

/// Starts to look for stalls.
pub fn watch() {
    static THREAD: OnceLock<()> = OnceLock::new();
    THREAD.get_or_init(|| drop(thread::spawn(beat)));
}

/// Returns a text about a stall since `began`, or shortly before. Returns when no server remembers it.
pub fn forget_stall_since(began: Instant) -> Option<String> {
    // One that goes on is noted when it is over.
    thread::sleep(2 * BEAT);
    let (end, length) = latest()?;
    if end + MEMORY < began {
        return None;
    }
    thread::sleep((end + MEMORY).saturating_duration_since(Instant::now()));
    Some(format!("the test machine stood still, or its clock was set, for {} ms", length.as_millis()))
}

fn latest() -> Option<(Instant, Duration)> {
    *LATEST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn beat() {
    loop {
        let (began, clock) = (Instant::now(), now_us());
        thread::sleep(BEAT);
        let late = late_by(began.elapsed(), now_us() - clock);
        if late >= STALL {
            *LATEST.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), late));
        }
    }
}

/// Returns how much longer than a beat it took, or by how much the clock was set.
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
