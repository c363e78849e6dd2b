//! Registers the module's settings with the server.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::ptr;

use redis_module::raw;

use super::Setting;
use crate::server::api::{ERR, OK};
use crate::server::context::Context;
use crate::server::module::Module;
use crate::server::panics::catch_panic;

/// The error of CONFIG SET after a panic.
const INTERNAL_ERROR: &str = "internal error of the module, see the server's log";

/// Registers the settings and reads their values from the server's configuration. Returns `false` if the server refuses a
/// setting or its value.
pub(in crate::server) fn register<M: Module>(ctx: &Context<'_, M>) -> bool {
    let registered = M::SETTINGS.iter().all(|setting| {
        let result =
            if setting.is_switch { register_switch::<M>(ctx, setting) } else { register_number::<M>(ctx, setting) };
        result == OK
    });
    // SAFETY: called once, while loading, as the server demands.
    registered && unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) } == OK
}

fn register_number<M: Module>(ctx: &Context<'_, M>, setting: &'static Setting) -> c_int {
    // SAFETY: name and setting are static; the server passes the setting's address to the callbacks as their private data.
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
    debug_assert!(!setting.is_null(), "the server has lost the private data of a setting");
    // SAFETY: the private data that `register` gave to the server.
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
    debug_assert!([0, 1].contains(&value), "a switch is neither yes nor no");
    // SAFETY: the server's own arguments.
    unsafe { set::<M>(name, c_longlong::from(value), setting, error) }
}

unsafe extern "C" fn set<M: Module>(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    debug_assert!(!setting.is_null(), "the server has lost the private data of a setting");
    debug_assert!(!error.is_null(), "no place for an error");
    // SAFETY: the private data that `register` gave to the server.
    unsafe { &*setting.cast::<Setting>() }.set(value);
    let is_handled = catch_panic("setting", false, || {
        M::setting_changed();
        true
    });
    if is_handled {
        return OK;
    }
    let (text, len) = (INTERNAL_ERROR.as_ptr().cast(), INTERNAL_ERROR.len());
    // SAFETY: `error` is a place for a string, which the server frees; the text is copied.
    unsafe { *error = api!(RedisModule_CreateString(ptr::null_mut(), text, len)) };
    // The server sets the old value again.
    ERR
}
