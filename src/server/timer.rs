//! The timer of a module.
//!
//! The server's own timers count whole milliseconds from now, and Redis 7.0 may oversleep by up to 100 ms if a client that was
//! blocked or buffered has set one. So the time comes from a Linux timer descriptor in the server's event loop. It is exact, and
//! always wakes the loop. Its callback has no context to write in, so it sets a server timer of zero length, which runs in the
//! same event-loop iteration and does the work:
//!
//! ```text
//!   set_timer ──> descriptor becomes readable ──> on_readable ──┐
//!   run_timer_soon ─────────────────────────────────────────────┼──> server timer ──> on_timer ──> Module::timer
//!   cron, if the timer is overdue ──────────────────────────────┘
//! ```
//!
//! The server's cron checks the timer, because a sandbox or a library between the server and the clock of the machine may wake
//! the loop too late, or never.

pub(super) mod schedule;

use std::ffi::{c_int, c_void};
use std::{io, ptr};

use redis_module::raw;

use super::UnixMs;
use super::api::OK;
use super::clock;
use super::context::Context;
use super::module::Module;
use super::panics::catch_panic;
use super::state::state;

use schedule::{Descriptor, READABLE, ServerTimer, Timer};

/// Adds the timer to the server's event loop, and creates the module's own context. Called when the module is loaded.
pub(super) fn install<M: Module>(ctx: &Context<'_, M>) -> io::Result<()> {
    debug_assert!(state().own_context.get().is_null(), "the timer is installed twice");
    let descriptor = Descriptor::create(|fd| {
        // SAFETY: the callback has the signature that the API asks for and gets no data; a `Descriptor` removes itself from the
        // loop before it is closed.
        unsafe { api!(RedisModule_EventLoopAdd(fd, READABLE, Some(on_readable::<M>), ptr::null_mut())) == OK }
    })?;
    // SAFETY: the server's own context; `uninstall` frees the one that is made from it.
    let own_context = unsafe { api!(RedisModule_GetDetachedThreadSafeContext(ctx.raw())) };
    state().own_context.set(own_context);
    state().timer.replace(Timer::installed(descriptor));
    state().server_timer.set(ServerTimer::Off);
    Ok(())
}

/// Removes the timer from the server's event loop, and frees the module's own context. Called when the module is unloaded.
pub(super) fn uninstall() {
    drop(state().timer.replace(Timer::new()));
    let own_context = state().own_context.replace(ptr::null_mut());
    if !own_context.is_null() {
        // SAFETY: `install` created the context, and nothing uses it after this.
        unsafe { api!(RedisModule_FreeThreadSafeContext(own_context)) };
    }
}

/// Sets the timer, so that [`Module::timer`] is called at `time` or earlier. A timer that is set to an earlier time keeps it,
/// which is cheaper than to set it again each time. If the time has come, this is [`run_timer_soon`].
pub fn set_timer<M: Module>(time: UnixMs) {
    if time <= clock::now_ms() {
        return run_timer_soon::<M>();
    }
    state().timer.borrow_mut().set(time);
}

/// Sets the timer, so that [`Module::timer`] is called in this event-loop iteration, or in the next one if this one has run its
/// timers. While the module is being loaded, that is the next iteration.
pub fn run_timer_soon<M: Module>() {
    // Wakes the loop, in case it has already decided to sleep.
    state().timer.borrow_mut().set(0);
    start_server_timer::<M>();
}

/// Runs `on_timer` in this event-loop iteration, unless the server timer is set or runs. A server timer that is set while one
/// runs would be a millisecond late.
fn start_server_timer<M: Module>() {
    if state().timer.borrow().is_new {
        return;
    }
    let Some(ctx) = Context::own() else { return };
    match state().server_timer.get() {
        ServerTimer::Off => {}
        // The clock was set back before the server timer could run, and the server would wait for the time to come again.
        ServerTimer::Set(id, at) if clock::now_ms() < at => {
            // SAFETY: the context that the timer was set in; the timer is set, and not running.
            let result = unsafe { api!(RedisModule_StopTimer(ctx.raw(), id, ptr::null_mut())) };
            debug_assert_eq!(result, OK, "the server timer was not set");
        }
        ServerTimer::Set(..) | ServerTimer::Running => return,
    }
    let at = clock::now_ms();
    // SAFETY: the context is the module's own; the callback has the signature that the API asks for and gets no data. The
    // server does not unload the module while the timer is set.
    let id = unsafe { api!(RedisModule_CreateTimer(ctx.raw(), 0, Some(on_timer::<M>), ptr::null_mut())) };
    state().server_timer.set(ServerTimer::Set(id, at));
}

/// Runs the timer if it is overdue, or if it `runs` in any iteration of the event loop but the first one. Called with `false`
/// when the server's cron runs.
pub(super) fn iteration_begins<M: Module>(runs: bool) {
    let is_first = state().timer.borrow_mut().iteration_begins();
    if runs && !is_first || state().timer.borrow().is_due() {
        start_server_timer::<M>();
    }
}

/// Sets the server timer. The descriptor stays readable until the work is done, so the loop calls this function again if the
/// server does not run its timers in this iteration. The work is not done here, because the server also calls this function while
/// a slow script blocks everything else.
unsafe extern "C" fn on_readable<M: Module>(_fd: c_int, _data: *mut c_void, _mask: c_int) {
    catch_panic("timer descriptor", (), |_| iteration_begins::<M>(true));
}

unsafe extern "C" fn on_timer<M: Module>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    let before = state().server_timer.replace(ServerTimer::Running);
    debug_assert!(matches!(before, ServerTimer::Set(..)), "a server timer fires that is not set");
    catch_panic("timer", (), |_| {
        state().timer.borrow_mut().acknowledge();
        // SAFETY: the server's own context for this callback.
        M::timer(&mut unsafe { Context::new(ctx) });
    });
    state().server_timer.set(ServerTimer::Off);
}
