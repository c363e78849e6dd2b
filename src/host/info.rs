//! `INFO lock`.

use std::ffi::{CString, c_int};

use redis_module::raw;

use super::context::Context;
use super::guard::guard;
use super::state;
use crate::core::{Cause, WAIT_BUCKETS_MS};

/// Adds the section to INFO. `false`: refused.
pub fn register(ctx: Context<'_>) -> bool {
    // SAFETY: called while loading; the callback has the signature the API asks for.
    unsafe { api!(RedisModule_RegisterInfoFunc(ctx.raw(), Some(on_info))) == raw::REDISMODULE_OK as c_int }
}

unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        return; // Whatever was going on, the state may be lent already.
    }
    guard("info", (), || {
        // SAFETY: the server's own context for this callback. Without a name the section is called like the module.
        if unsafe { api!(RedisModule_InfoAddSection(info, c"".as_ptr())) } != raw::REDISMODULE_OK as c_int {
            return; // Another section was asked for.
        }
        for (name, value) in fields() {
            let Ok(name) = CString::new(name) else { continue };
            // SAFETY: the server's own context; the name is copied.
            unsafe { api!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), value)) };
        }
    });
}

/// Every figure with its name, to which the server adds `lock_` in front.
fn fields() -> Vec<(String, u64)> {
    state::with(|state| {
        let stats = &state.stats;
        let mut fields = vec![
            ("waiters".to_owned(), state.room.waiting() as u64),
            ("sessions".to_owned(), state.sessions.len() as u64),
            ("granted_at_once".to_owned(), stats.granted_at_once),
            ("granted_after_waiting".to_owned(), stats.granted_after_waiting()),
            ("timed_out".to_owned(), stats.timed_out),
            ("cancelled".to_owned(), stats.cancelled),
            ("resent".to_owned(), stats.resent),
        ];
        let handovers =
            Cause::ALL.into_iter().map(|cause| (format!("handovers_{}", cause.name()), stats.handovers(cause)));
        fields.extend(handovers);
        fields.push(("not_owner_errors".to_owned(), stats.not_owner));
        let bounds = WAIT_BUCKETS_MS.iter().map(i64::to_string).chain(["inf".to_owned()]);
        let waits = bounds.zip(stats.waits_within()).map(|(bound, waits)| (format!("waits_le_{bound}_ms"), waits));
        fields.extend(waits);
        fields
    })
}
