//! Who hears of the module's own writes.
//!
//! An event that nobody listens to is not caused: each would cost the server a call, and from the first waiter on it
//! would come back to ourselves, who know already. Listeners are clients, by the server's `notify-keyspace-events`, and
//! other modules, which do not show: if there is one, it may listen.

use std::ffi::{CStr, c_int, c_void};

use redis_module::raw;

use super::context::Context;
use super::guard::guard;
use super::load::{NAME, server_info};
use super::state;

/// Looks whether another module is there already, when this one is loaded.
pub fn look_for_modules(ctx: Context<'_>) {
    // Ours is listed only once it is loaded.
    if server_info(ctx, c"modules", c"module").is_some() {
        state::with(|state| state.other_modules = true);
    }
}

/// The classes of events that anybody may listen to.
pub fn classes() -> c_int {
    if state::with(|state| state.other_modules) {
        return c_int::MAX;
    }
    // SAFETY: the function takes nothing and reads a setting.
    unsafe { api!(RedisModule_GetNotifyKeyspaceEvents()) }
}

/// A module was loaded or unloaded. One that is gone again still counts: it is not worth the book-keeping.
pub unsafe extern "C" fn on_module_change(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _change: u64,
    data: *mut c_void,
) {
    guard("module change", (), || {
        // SAFETY: with this event comes this structure, and in it a C string, valid for this callback.
        let name = unsafe { CStr::from_ptr((*data.cast::<raw::RedisModuleModuleChange>()).module_name) };
        if name != NAME {
            state::with(|state| state.other_modules = true);
        }
    });
}
