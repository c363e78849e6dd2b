//! What an operator can set, in the configuration file and by CONFIG SET.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};

/// A number that the operator sets.
pub struct Setting {
    /// Without the module's name, which the server puts in front.
    pub(super) name: &'static CStr,
    pub(super) default: i64,
    pub(super) min: i64,
    pub(super) max: i64,
    value: AtomicI64,
}

impl Setting {
    pub const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self { name, default, min, max, value: AtomicI64::new(default) }
    }

    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }
}
