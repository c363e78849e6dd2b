//! The module's own section of INFO.

use std::ffi::{CString, c_int};

use redis_module::raw;

use crate::server::api::OK;
use crate::server::context::Context;
use crate::server::module::Module;
use crate::server::panics::catch_panic;

/// Registers the section. Returns `false` if the server refuses it.
pub(in crate::server) fn register<M: Module>(ctx: &Context<'_, M>) -> bool {
    // SAFETY: called while loading; the callback has the signature that the API asks for.
    unsafe { api!(RedisModule_RegisterInfoFunc(ctx.raw(), Some(on_info::<M>))) == OK }
}

unsafe extern "C" fn on_info<M: Module>(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    debug_assert!(!info.is_null(), "no context for INFO");
    if for_crash_report != 0 {
        return; // The server may have crashed in any place, also while the module's state is lent.
    }
    catch_panic("info", (), || {
        // SAFETY: the server's own context for this callback. A section without a name has the name of the module.
        if unsafe { api!(RedisModule_InfoAddSection(info, c"".as_ptr())) } != OK {
            return; // The client asked for another section.
        }
        for (name, value) in M::state().with(M::info) {
            debug_assert!(!name.is_empty() && !name.contains('\0'), "no name for a field: {name:?}");
            // In release builds a field without a valid name is left out.
            let Ok(name) = CString::new(name) else { continue };
            // SAFETY: the server's own context; the name is copied.
            let result = unsafe { api!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), value)) };
            debug_assert_eq!(result, OK, "a field outside of the section");
        }
    });
}
