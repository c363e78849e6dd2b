//! Settings, in the configuration file and in CONFIG SET.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};

/// A number that the operator can set.
pub struct Setting {
    /// The name, without the module's name, which the server prefixes.
    pub(super) name: &'static CStr,
    pub(super) default: i64,
    pub(super) min: i64,
    pub(super) max: i64,
    value: AtomicI64,
}

impl Setting {
    /// Creates a setting with a default value and an inclusive range.
    pub const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self { name, default, min, max, value: AtomicI64::new(default) }
    }

    /// Returns the present value.
    #[inline(always)]
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }
}
