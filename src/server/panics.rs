//! Catches and logs panics. A panic that reached the server would abort it.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::{mem, ptr};

use super::api;
#[cfg(feature = "failpoints")]
use super::failpoints;
use super::right::Server;
use super::state::state;

/// The error reply to a client whose command has panicked, or whose wait has ended with a panic.
pub(super) const INTERNAL_ERROR: &str = "ERR internal error of the module, see the server's log";

/// Runs `body`, which is the body of the callback `what`, with the right to use the server. If it panics, logs the panic, calls
/// the function that
/// [`log_panics`] has set, and returns `fallback`.
pub fn catch_panic<R>(what: &'static str, fallback: R, body: impl FnOnce(&Server) -> R) -> R {
    let body = || body(&Server::new());
    #[cfg(feature = "failpoints")]
    let body = || failpoints::run(what, body);
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(payload) => {
            log(what, payload);
            if let Some(after_panic) = state().after_panic.get() {
                catch_unwind(|| after_panic(&Server::new())).unwrap_or_else(|payload| log("after a panic", payload));
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
    api::log(ptr::null_mut(), c"warning", &line);
    // The payload may be of any type, and dropping it may panic, again and again.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(another);
    }
}

/// Sets a hook that logs the place of each panic, and the function to call after each panic. Called when the module is loaded.
///
/// The hook of std would take a backtrace if RUST_BACKTRACE is set, and free memory of the C library with the server's allocator.
pub fn log_panics(after_panic: fn(&Server)) {
    let log = |line: &str| api::log(ptr::null_mut(), c"warning", line);
    panic::set_hook(Box::new(move |info| log(&info.to_string().replace('\n', " "))));
    state().after_panic.set(Some(after_panic));
}
