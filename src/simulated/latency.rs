//! The latency monitor, for which nothing here is slow.

use std::ffi::CStr;

/// Measures how long something takes. While the module runs, no time passes.
#[derive(Clone, Copy)]
pub struct Stopwatch;

impl Stopwatch {
    pub fn start() -> Self {
        Self
    }

    pub fn stop(self, _event: &'static CStr) {}
}
