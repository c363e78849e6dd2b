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
        // A duration of 292 million years is cut short.
        let elapsed_ms = i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX);
        // In the common case the module does not ask the server for its threshold.
        if elapsed_ms > 0 {
            add_sample(event, elapsed_ms);
        }
    }
}

#[cold]
fn add_sample(event: &'static CStr, elapsed_ms: i64) {
    // Redis keeps samples of modules even if the monitor is off.
    if has_api!(RedisModule_LatencyAddSample)
        && server_setting(c"latency-monitor-threshold").is_some_and(|threshold_ms| threshold_ms > 0)
    {
        // SAFETY: a static C string, and a number. The server compares it with the threshold, and calls nothing back.
        unsafe { api!(RedisModule_LatencyAddSample(event.as_ptr(), elapsed_ms)) };
    }
}
