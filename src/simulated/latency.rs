//! The latency monitor, which records nothing here.

use std::ffi::CStr;

/// Measures the duration of an operation. Nothing is recorded, because no simulated time passes while the module runs.
#[derive(Clone, Copy)]
pub struct Stopwatch;

impl Stopwatch {
    pub fn start() -> Self {
        Self
    }

    pub fn stop(self, _event: &'static CStr) {}
}
