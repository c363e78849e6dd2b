//! Samples for the server's latency monitor, which LATENCY shows.

use std::ffi::CStr;
use std::time::Instant;

use super::settings::server_setting;

/// Measures the duration of an operation.
#[derive(Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins to measure.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Adds a sample of `event` to the latency monitor, if the operation took at least a millisecond and at least
    /// `latency-monitor-threshold`. Adds no sample if `rename-command` has changed the name of CONFIG.
    pub fn stop(self, event: &'static CStr) {
        let elapsed_ms = self.0.elapsed().as_millis() as i64;
        // Redis keeps samples of modules even if the monitor is off, at a threshold of 0.
        let is_on = || server_setting(c"latency-monitor-threshold").is_some_and(|threshold_ms| threshold_ms > 0);
        if elapsed_ms > 0 && has_api!(RedisModule_LatencyAddSample) && is_on() {
            // SAFETY: a static C string, and a number. The server compares it with the threshold, and calls nothing back.
            unsafe { api!(RedisModule_LatencyAddSample(event.as_ptr(), elapsed_ms)) };
        }
    }
}
