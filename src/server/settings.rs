//! Settings: those of the module, and those of the server.

mod register;

use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};

use super::calls::CallMode;
use super::context::Context;

pub(super) use register::register;

/// A setting of the module, in the configuration file and in CONFIG SET: a number, or `yes` or `no`.
pub struct Setting {
    /// The name without the name of the module, which the server puts in front.
    name: &'static CStr,
    default: i64,
    min: i64,
    max: i64,
    is_switch: bool,
    /// Written by CONFIG SET and when the module is loaded. An atomic, because a static must be `Sync`.
    value: AtomicI64,
}

impl Setting {
    /// Creates a setting that is a number from `min` to `max`, both included.
    pub const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        debug_assert!(min <= default && default <= max, "the default is out of range");
        Self { name, default, min, max, is_switch: false, value: AtomicI64::new(default) }
    }

    /// Creates a setting that is `yes` or `no`. The default is `no`.
    pub const fn switch(name: &'static CStr) -> Self {
        Self { name, default: 0, min: 0, max: 1, is_switch: true, value: AtomicI64::new(0) }
    }

    /// Returns the present value. A switch has the value 1 or 0.
    #[inline(always)]
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Returns whether a switch is set to `yes`.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.get() != 0
    }

    fn set(&self, value: i64) {
        debug_assert!((self.min..=self.max).contains(&value), "the server has checked the range of {:?}", self.name);
        self.value.store(value, Ordering::Relaxed);
    }
}

/// Returns the value of a setting of the server that is a number. Returns `None` if the server does not have the setting, if the
/// value is no number, or if `rename-command` has changed the name of CONFIG.
pub fn server_setting(name: &'static CStr) -> Option<i64> {
    let reply = Context::own()?.call(c"CONFIG", CallMode::Read, &[b"GET", name.to_bytes()]).ok()?;
    reply.element(1)?.text().parse().ok()
}
