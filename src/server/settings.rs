//! Registers settings with the server.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::ptr;

use redis_module::raw;

use super::context::Context;
use super::module::Module;
use super::panics::catch_panic;
use super::setting::Setting;

/// What CONFIG SET says of a panic.
const INTERNAL: &str = "internal error of the module, see the server's log";

/// Registers the settings and reads their values from the server's configuration. Returns `false` if the server
/// refuses.
pub(super) fn register<M: Module>(ctx: &Context<'_, M>) -> bool {
    let known = M::SETTINGS.iter().all(|setting| {
        let answer =
            if setting.is_switch { register_switch::<M>(ctx, setting) } else { register_number::<M>(ctx, setting) };
        answer == raw::REDISMODULE_OK as c_int
    });
    // SAFETY: called once, while loading, as the server demands.
    known && unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) } == raw::REDISMODULE_OK as c_int
}

fn register_number<M: Module>(ctx: &Context<'_, M>, setting: &'static Setting) -> c_int {
    // SAFETY: name and setting are static; the callbacks get the setting's address back as their private data.
    unsafe {
        api!(RedisModule_RegisterNumericConfig(
            ctx.raw(),
            setting.name.as_ptr(),
            setting.default,
            raw::REDISMODULE_CONFIG_DEFAULT,
            setting.min,
            setting.max,
            Some(get),
            Some(set::<M>),
            None,
            private_data(setting),
        ))
    }
}

fn register_switch<M: Module>(ctx: &Context<'_, M>, setting: &'static Setting) -> c_int {
    // SAFETY: as in `register_number`.
    unsafe {
        api!(RedisModule_RegisterBoolConfig(
            ctx.raw(),
            setting.name.as_ptr(),
            c_int::from(setting.default != 0),
            raw::REDISMODULE_CONFIG_DEFAULT,
            Some(get_switch),
            Some(set_switch::<M>),
            None,
            private_data(setting),
        ))
    }
}

fn private_data(setting: &'static Setting) -> *mut c_void {
    ptr::from_ref(setting).cast_mut().cast()
}

unsafe extern "C" fn get(_name: *const c_char, setting: *mut c_void) -> c_longlong {
    // SAFETY: the private data that `register` gave.
    unsafe { &*setting.cast::<Setting>() }.get()
}

unsafe extern "C" fn get_switch(name: *const c_char, setting: *mut c_void) -> c_int {
    // SAFETY: the server's own arguments.
    c_int::from(unsafe { get(name, setting) } != 0)
}

unsafe extern "C" fn set_switch<M: Module>(
    name: *const c_char,
    value: c_int,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server's own arguments.
    unsafe { set::<M>(name, c_longlong::from(value), setting, error) }
}

unsafe extern "C" fn set<M: Module>(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the private data that `register` gave.
    unsafe { &*setting.cast::<Setting>() }.set(value);
    let has_changed = catch_panic("setting", false, || {
        M::setting_changed();
        true
    });
    if has_changed {
        return raw::REDISMODULE_OK as c_int;
    }
    // The server sets the old value again.
    // SAFETY: a place for a string, which the server frees; the text is copied.
    unsafe { *error = api!(RedisModule_CreateString(ptr::null_mut(), INTERNAL.as_ptr().cast(), INTERNAL.len())) };
    raw::REDISMODULE_ERR as c_int
}
