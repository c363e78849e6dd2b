//! Catches and logs panics. A panic that reached the server would abort it.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::{mem, ptr};

use super::api;
#[cfg(feature = "failpoints")]
use super::failpoints;

/// What a client is told whose command has panicked, or whose wait has ended with a panic.
pub(super) const INTERNAL_ERROR: &str = "ERR internal error of the module, see the server's log";

/// What is called after each panic.
static AFTERMATH: OnceLock<fn()> = OnceLock::new();

/// Runs `body` of a callback named `what`. If it panics, logs that, tells the module, and returns `fallback`.
pub fn catch_panic<R>(what: &'static str, fallback: R, body: impl FnOnce() -> R) -> R {
    #[cfg(feature = "failpoints")]
    let body = || failpoints::run(what, body);
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(payload) => {
            log(what, payload);
            if let Some(aftermath) = AFTERMATH.get() {
                catch_unwind(aftermath).unwrap_or_else(|payload| log("aftermath", payload));
            }
            fallback
        }
    }
}

#[cold]
fn log(what: &str, payload: Box<dyn Any + Send>) {
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let line = format!("bug in redis-lock, please report it: {what}: {}", message.unwrap_or("panic"));
    api::warn(ptr::null_mut(), &line);
    // Dropping a foreign payload could panic again, and again.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(another);
    }
}

/// Sets a hook that logs each panic where it happens, and what is called after it. Called when the module is loaded.
///
/// The hook of std would take a backtrace if RUST_BACKTRACE is set. On a server with an allocator of its own, it would
/// free memory of the C library with that allocator.
pub fn log_panics(aftermath: fn()) {
    panic::set_hook(Box::new(|info| api::warn(ptr::null_mut(), &info.to_string().replace('\n', " "))));
    AFTERMATH.get_or_init(|| aftermath);
}
