//! The module's section of `INFO`.

use std::ffi::{CString, c_int};

use redis_module::raw;

use super::context::Context;
use super::module::Module;
use super::panics::catch_panic;

/// Registers the section. Returns `false` if the server refuses it.
pub(super) fn register<M: Module>(ctx: &Context<'_, M>) -> bool {
    // SAFETY: called while loading; the callback has the signature the API asks for.
    unsafe { api!(RedisModule_RegisterInfoFunc(ctx.raw(), Some(on_info::<M>))) == raw::REDISMODULE_OK as c_int }
}

unsafe extern "C" fn on_info<M: Module>(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        return; // Whatever was going on, the state may be lent already.
    }
    catch_panic("info", (), || {
        // SAFETY: the server's own context for this callback. Without a name the section is called like the module.
        if unsafe { api!(RedisModule_InfoAddSection(info, c"".as_ptr())) } != raw::REDISMODULE_OK as c_int {
            return; // Another section was asked for.
        }
        for (name, value) in M::state().with(M::info) {
            let Ok(name) = CString::new(name) else { continue };
            // SAFETY: the server's own context; the name is copied.
            unsafe { api!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), value)) };
        }
    });
}
