//! Who hears of the module's own writes.
//!
//! An event that nobody listens to is not caused: each would cost the server a call, and from the first waiter on it
//! would come back to ourselves, who know already. Listeners are clients, by the server's `notify-keyspace-events`, and
//! other modules, which do not show: if there is one, it may listen.

use std::ffi::{CStr, c_int, c_void};
use std::slice;

use redis_module::raw;

use super::context::Context;
use super::guard::guard;
use super::load::NAME;
use super::state;

/// Modules that are part of a server (Redis 8, Valkey 9) and listen to no keys.
const BUNDLED: [&[u8]; 2] = [b"vectorset", b"lua"];

/// Looks which modules are there already, when this one is loaded. If the server does not say, somebody may listen.
pub fn look_for_modules(ctx: Context<'_>) {
    let Some(listed) = modules(ctx) else { return state::with(|state| state.other_modules = true) };
    let names = listed.split(|&byte| byte == b'\n').filter_map(|line| {
        let description = line.strip_prefix(b"module:name=")?;
        description.split(|&byte| byte == b',').next()
    });
    names.for_each(welcome);
}

/// A module that may listen changes what there is to do for us. One that is gone again still counts: it is not worth
/// the book-keeping.
fn welcome(module: &[u8]) {
    if module != NAME.to_bytes() && !BUNDLED.contains(&module) {
        state::with(|state| state.other_modules = true);
    }
}

/// The server's list of modules, as INFO shows it. `None` where the configuration has taken INFO away.
fn modules(ctx: Context<'_>) -> Option<Vec<u8>> {
    // SAFETY: "c" takes a C string; the reply, if there is one, is ours to read and to free, once, and its text is copied
    // before that.
    unsafe {
        let reply = api!(RedisModule_Call(ctx.raw(), c"INFO".as_ptr(), c"c".as_ptr(), c"modules".as_ptr()));
        if reply.is_null() {
            return None;
        }
        let mut len = 0;
        let start = api!(RedisModule_CallReplyStringPtr(reply, &raw mut len));
        let text = (!start.is_null()).then(|| slice::from_raw_parts(start.cast::<u8>(), len).to_vec());
        api!(RedisModule_FreeCallReply(reply));
        text
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

/// A module was loaded or unloaded.
pub unsafe extern "C" fn on_module_change(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _change: u64,
    data: *mut c_void,
) {
    guard("module change", (), || {
        // SAFETY: with this event comes this structure, and in it a C string, valid for this callback.
        let name = unsafe { CStr::from_ptr((*data.cast::<raw::RedisModuleModuleChange>()).module_name) };
        welcome(name.to_bytes());
    });
}
