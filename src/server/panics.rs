//! The line no panic crosses: unwinding into the server would abort it.

use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::api;

/// Runs the body of a callback named `what`. A panic is logged and answered with `fallback`.
pub fn catch_panic<R>(what: &str, fallback: R, body: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(payload) => {
            let message = payload.downcast_ref::<&str>().copied();
            let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let line = format!("bug in redis-lock, please report it: {what}: {}", message.unwrap_or("panic"));
            api::warn(ptr::null_mut(), &line);
            // Dropping a foreign payload could panic again.
            std::mem::forget(payload);
            fallback
        }
    }
}

/// Has a panic logged where it happens, when the module is loaded. The hook of std would take a backtrace if RUST_BACKTRACE
/// is set, and so give memory of the C library to the wrong allocator where a server brings one of its own.
pub fn log_panics() {
    panic::set_hook(Box::new(|info| api::warn(ptr::null_mut(), &info.to_string().replace('\n', " "))));
}
