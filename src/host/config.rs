//! Settings: `lock.*` in the configuration file and in CONFIG SET.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use redis_module::raw;

use super::context::Context;

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

static SETTINGS: [&Setting; 2] = [&MAX_WAITERS, &MAX_BLOCK_MS];

impl Setting {
    const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self { name, default, min, max, value: AtomicI64::new(default) }
    }

    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
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
