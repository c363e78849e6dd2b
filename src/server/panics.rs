//! Catches and logs panics. A panic that reached the server would abort it.

use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::api;

/// Runs `body` of a callback named `what`. If it panics, logs that and returns `fallback`.
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

/// Sets a hook that logs each panic where it happens. Called when the module is loaded.
///
/// The hook of std would take a backtrace if RUST_BACKTRACE is set. On a server with an allocator of its own, it would
/// free memory of the C library with that allocator.
pub fn log_panics() {
    panic::set_hook(Box::new(|info| api::warn(ptr::null_mut(), &info.to_string().replace('\n', " "))));
}
