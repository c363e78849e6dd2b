//! The module's own section of INFO.

use std::ffi::{CString, c_int};

use redis_module::raw;

use super::api::OK;
use super::context::Context;
use super::module::Module;
use super::panics::catch_panic;

/// Registers the section. Returns `false` if the server refuses it.
pub(super) fn register<M: Module>(ctx: &Context<'_, M>) -> bool {
    // SAFETY: called while loading; the callback has the signature that the API asks for.
    unsafe { api!(RedisModule_RegisterInfoFunc(ctx.raw(), Some(on_info::<M>))) == OK }
}

unsafe extern "C" fn on_info<M: Module>(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        return; // The server may have crashed in any place, also while the module's state is lent.
    }
    catch_panic("info", (), |server| {
        // SAFETY: the server's own context for this callback. A section without a name has the name of the module.
        if unsafe { api!(RedisModule_InfoAddSection(info, c"".as_ptr())) } != OK {
            return; // The client asked for another section.
        }
        for (name, value) in M::state().with(server, M::info) {
            let Ok(name) = CString::new(name) else { continue }; // No name has a NUL.
            // SAFETY: the server's own context; the name is copied.
            unsafe { api!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), value)) };
        }
        for (name, word) in M::state().with(server, M::info_words) {
            // SAFETY: the server's own context; name and word are copied.
            unsafe { api!(RedisModule_InfoAddFieldCString(info, name.as_ptr(), word.as_ptr())) };
        }
    });
}
