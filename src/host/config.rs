//! Settings: `lock.*` in the configuration file and in CONFIG SET.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use redis_module::raw;

use super::context::Context;
use crate::core::UnixMs;

/// A number that the operator sets.
pub struct Setting {
    /// Without the module's name, which the server puts in front.
    name: &'static CStr,
    default: i64,
    min: i64,
    max: i64,
    value: AtomicI64,
}

/// How many requests may wait, over all locks. Each costs the server memory, see docs/operations.md.
pub static MAX_WAITERS: Setting = Setting::new(c"max-waiters", 100_000, 0, 10_000_000);

/// The longest wait in milliseconds, whatever BLOCK says; 0: no limit.
pub static MAX_BLOCK_MS: Setting = Setting::new(c"max-block-ms", 0, 0, crate::core::MAX_DURATION_MS);

/// For how many milliseconds the place of a waiter is kept whose connection is lost or whose time is up; 0: not at all.
pub static REJOIN_GRACE_MS: Setting = Setting::new(c"rejoin-grace-ms", 10_000, 0, 86_400_000);

/// How many pairs of a connection and a lock that belongs to it, or shall, there may be. Each is renewed.
pub static MAX_SESSIONS: Setting = Setting::new(c"max-sessions", 100_000, 0, 10_000_000);

static SETTINGS: [&Setting; 4] = [&MAX_WAITERS, &MAX_BLOCK_MS, &REJOIN_GRACE_MS, &MAX_SESSIONS];

impl Setting {
    const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self { name, default, min, max, value: AtomicI64::new(default) }
    }

    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// Until when the place of one who leaves at `now` is kept, if at all.
pub fn kept_until(now: UnixMs) -> Option<UnixMs> {
    let grace_ms = REJOIN_GRACE_MS.get();
    (grace_ms > 0).then(|| now.saturating_add(grace_ms))
}

/// Makes the settings known to the server and takes over what its configuration says. `false`: refused.
pub fn register(ctx: Context<'_>) -> bool {
    let known = SETTINGS.iter().all(|setting| {
        // SAFETY: name and setting are static; the callbacks get the setting's address back as their private data.
        let answer = unsafe {
            api!(RedisModule_RegisterNumericConfig(
                ctx.raw(),
                setting.name.as_ptr(),
                setting.default,
                raw::REDISMODULE_CONFIG_DEFAULT,
                setting.min,
                setting.max,
                Some(get),
                Some(set),
                None,
                ptr::from_ref::<Setting>(setting).cast_mut().cast(),
            ))
        };
        answer == raw::REDISMODULE_OK as c_int
    });
    // SAFETY: called once, while loading, as the server demands.
    known && unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) } == raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get(_name: *const c_char, setting: *mut c_void) -> c_longlong {
    // SAFETY: the private data that `register` gave.
    unsafe { &*setting.cast::<Setting>() }.get()
}

unsafe extern "C" fn set(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the private data that `register` gave.
    unsafe { &*setting.cast::<Setting>() }.value.store(value, Ordering::Relaxed);
    raw::REDISMODULE_OK as c_int
}
