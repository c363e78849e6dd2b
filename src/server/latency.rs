//! Samples for the server's latency monitor, which LATENCY shows.

use std::ffi::CStr;
use std::time::Instant;

use super::config::server_setting;

/// Measures how long something takes.
#[derive(Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins to measure.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Gives the latency monitor a sample of `event`, if it has taken as long as `latency-monitor-threshold` says: at
    /// least a millisecond.
    ///
    /// Without CONFIG under its own name there are no samples.
    pub fn stop(self, event: &'static CStr) {
        let elapsed_ms = i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX);
        // The common case needs no question.
        if elapsed_ms > 0 {
            add_sample(event, elapsed_ms);
        }
    }
}

#[cold]
fn add_sample(event: &'static CStr, elapsed_ms: i64) {
    // Redis takes samples of modules even if the monitor is off.
    if has_api!(RedisModule_LatencyAddSample)
        && server_setting(c"latency-monitor-threshold").is_some_and(|threshold_ms| threshold_ms > 0)
    {
        // SAFETY: a static C string, and a number. The server compares it with the threshold, and calls nothing back.
        unsafe { api!(RedisModule_LatencyAddSample(event.as_ptr(), elapsed_ms)) };
    }
}
