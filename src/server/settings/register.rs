//! Registers the module's settings with the server.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::ptr;

use redis_module::raw;

use super::Setting;
use crate::server::api::{ERR, OK};
use crate::server::context::Context;
use crate::server::module::Module;
use crate::server::panics::{INTERNAL_ERROR, catch_panic};

/// Registers the settings and reads their values from the server's configuration. Returns `false` if the server refuses a
/// setting or its value.
pub(in crate::server) fn register<M: Module>(ctx: &Context<'_, M>) -> bool {
    let registered = M::settings().iter().all(|setting| register_one(ctx, setting) == OK);
    // SAFETY: called once, while loading, as the server demands.
    registered && unsafe { api!(RedisModule_LoadConfigs(ctx.raw())) } == OK
}

fn register_one<M: Module>(ctx: &Context<'_, M>, setting: &'static Setting) -> c_int {
    let Setting { default, min, max, .. } = *setting;
    let (ctx, name, flags) = (ctx.raw(), setting.name.as_ptr(), raw::REDISMODULE_CONFIG_DEFAULT);
    let private = ptr::from_ref(setting).cast_mut().cast();
    // SAFETY: name and setting are static; the server passes the setting's address to the callbacks as their private data.
    unsafe {
        if setting.is_switch {
            let (get, set) = (Some(get_switch as _), Some(set_switch::<M> as _));
            api!(RedisModule_RegisterBoolConfig(ctx, name, default as c_int, flags, get, set, None, private))
        } else {
            let (get, set) = (Some(get as _), Some(set::<M> as _));
            api!(RedisModule_RegisterNumericConfig(ctx, name, default, flags, min, max, get, set, None, private))
        }
    }
}

unsafe extern "C" fn get(_name: *const c_char, setting: *mut c_void) -> c_longlong {
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
    // SAFETY: the server's own arguments.
    unsafe { set::<M>(name, c_longlong::from(value), setting, error) }
}

unsafe extern "C" fn set<M: Module>(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the private data that `register` gave to the server.
    unsafe { &*setting.cast::<Setting>() }.set(value);
    let is_handled = catch_panic("setting", false, |server| {
        M::setting_changed(server);
        true
    });
    if is_handled {
        return OK;
    }
    // The server puts ERR in front.
    let text = INTERNAL_ERROR.trim_start_matches("ERR ");
    let (text, len) = (text.as_ptr().cast(), text.len());
    // SAFETY: `error` is a place for a string, which the server frees; the text is copied.
    unsafe { *error = api!(RedisModule_CreateString(ptr::null_mut(), text, len)) };
    // The server sets the old value again.
    ERR
}
