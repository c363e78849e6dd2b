//! Settings, in the configuration file and in CONFIG SET.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};

/// A number, or `yes` or `no`, that the operator can set.
pub struct Setting {
    /// The name, without the module's name, which the server prefixes.
    pub(super) name: &'static CStr,
    pub(super) default: i64,
    pub(super) min: i64,
    pub(super) max: i64,
    pub(super) is_switch: bool,
    value: AtomicI64,
}

impl Setting {
    /// Creates a setting with a default value and an inclusive range.
    pub const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self { name, default, min, max, is_switch: false, value: AtomicI64::new(default) }
    }

    /// Creates a setting that is `yes` or `no`, which is the default.
    pub const fn switch(name: &'static CStr) -> Self {
        Self { name, default: 0, min: 0, max: 1, is_switch: true, value: AtomicI64::new(0) }
    }

    /// Returns the present value.
    #[inline(always)]
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Returns whether a switch is set to `yes`.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.get() != 0
    }

    pub(super) fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }
}
