//! The one alarm of the module: it rings when the next thing falls due.
//!
//! The server's own timers count whole milliseconds from now, and Redis 7.0 may sleep past one for up to 100 ms when a
//! client that was blocked or buffered has set it. So the time comes from a Linux timer descriptor in the server's event
//! loop, which is exact and always ends the loop's sleep. Its callback has no context to write in, so it sets a server
//! timer of zero length, which runs in the same loop round and does the work.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::{io, mem, ptr};

use redis_module::raw;

use super::clock;
use super::context::Context;
use super::guard::guard;
use super::pump;
use super::state;
use crate::core::{PULSE_MS, Timely, UnixMs};

/// Readable, in the server's words.
const READABLE: c_int = raw::REDISMODULE_EVENTLOOP_READABLE as c_int;

/// The alarm clock.
pub struct Alarm {
    clock: Option<Clock>,
    /// When the descriptor becomes readable.
    set_to: Option<UnixMs>,
    /// A server timer of zero length is under way, or running.
    ringing: bool,
}

/// What exists from load to unload.
struct Clock {
    descriptor: OwnedFd,
    /// A context of our own, to set a server timer in.
    ctx: *mut raw::RedisModuleCtx,
}

/// The module's own context, for calls that need no callback's.
pub fn own_context() -> Option<*mut raw::RedisModuleCtx> {
    state::with(|state| state.alarm.clock.as_ref().map(|clock| clock.ctx))
}

impl Alarm {
    pub const fn new() -> Self {
        Self { clock: None, set_to: None, ringing: false }
    }
}

/// Puts the alarm into the server's event loop, when the module is loaded.
pub fn install(ctx: Context<'_>) -> io::Result<()> {
    // SAFETY: takes numbers only, and the descriptor it makes is nobody else's.
    let descriptor = unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_REALTIME, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the callback has the signature the API asks for and gets no data; `uninstall` takes the descriptor out of
    // the loop before it is closed.
    let added =
        unsafe { api!(RedisModule_EventLoopAdd(descriptor.as_raw_fd(), READABLE, Some(on_readable), ptr::null_mut())) };
    if added != raw::REDISMODULE_OK as c_int {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the server's own context; the one made from it is freed in `uninstall`.
    let own_ctx = unsafe { api!(RedisModule_GetDetachedThreadSafeContext(ctx.raw())) };
    state::with(|state| state.alarm.clock = Some(Clock { descriptor, ctx: own_ctx }));
    Ok(())
}

/// Takes the alarm out of the server's event loop, when the module is unloaded.
pub fn uninstall() {
    if let Some(clock) = state::with(|state| state.alarm.clock.take()) {
        // SAFETY: put in by `install`; nothing is called after this.
        unsafe {
            api!(RedisModule_EventLoopDel(clock.descriptor.as_raw_fd(), READABLE));
            api!(RedisModule_FreeThreadSafeContext(clock.ctx));
        }
    }
}

/// Sees to it that the alarm rings when the next thing falls due, and while there may be something to write often enough
/// to notice that the loop stands still.
pub fn set() {
    let now = clock::now();
    set_for(state::with(|state| {
        let pulse = state.may_write().then(|| now.saturating_add(PULSE_MS));
        if pulse.is_none() {
            state.stall.end();
        } else if !state.stall.is_on() {
            state.stall.turned(clock::steady_ms());
        }
        let due = [pulse, state.take_backs.next_due(), state.room.next_due(Timely::All), state.sessions.next_due()];
        due.into_iter().flatten().min()
    }));
}

/// Sees to it that the alarm rings at `time`, if any. One that rings earlier is left alone: it finds nothing due and is
/// set anew, which is cheaper than to move it each time.
pub fn set_for(time: Option<UnixMs>) {
    let Some(time) = time else { return };
    if time <= clock::now() {
        return ring();
    }
    state::with(|state| {
        if state.alarm.set_to.is_none_or(|set_to| set_to > time) {
            state.alarm.set_to = Some(time);
            set_descriptor(state.alarm.clock.as_ref(), time);
        }
    });
}

/// Rings in this loop round, or as soon as the loop gets to it.
pub fn ring() {
    state::with(|state| {
        let alarm = &mut state.alarm;
        if alarm.set_to.replace(0) != Some(0) {
            // Ends a sleep that the loop may have decided on already.
            set_descriptor(alarm.clock.as_ref(), 0);
        }
    });
    start_timer();
}

/// Has `on_ring` run in this loop round, unless it is running or about to: a timer that is set while one runs would come a
/// millisecond later.
fn start_timer() {
    let ctx = state::with(|state| {
        let alarm = &mut state.alarm;
        if mem::replace(&mut alarm.ringing, true) { None } else { alarm.clock.as_ref().map(|clock| clock.ctx) }
    });
    if let Some(ctx) = ctx {
        // SAFETY: the context is our own; the callback has the signature the API asks for and gets no data. The server
        // does not unload the module while the timer runs.
        unsafe { api!(RedisModule_CreateTimer(ctx, 0, Some(on_ring), ptr::null_mut())) };
    }
}

fn set_descriptor(clock: Option<&Clock>, time: UnixMs) {
    let Some(clock) = clock else { return };
    let (seconds, ms) = (time.div_euclid(1000), time.rem_euclid(1000));
    // All zeroes would switch the timer off.
    let nanoseconds = ms.saturating_mul(1_000_000).max(1);
    let at = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds },
    };
    // A step of the clock makes the descriptor readable, too, so that what is due by the new time is seen.
    let flags = libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET;
    // SAFETY: an open descriptor of this kind and a valid time; it fails only for invalid ones.
    unsafe { libc::timerfd_settime(clock.descriptor.as_raw_fd(), flags, &raw const at, ptr::null_mut()) };
}

unsafe extern "C" fn on_readable(fd: c_int, _data: *mut c_void, _mask: c_int) {
    guard("alarm", (), || {
        let mut expirations = 0u64;
        // SAFETY: reads eight bytes into eight bytes. Whether it succeeds or tells of a step of the clock, the
        // descriptor is not readable any more.
        unsafe { libc::read(fd, (&raw mut expirations).cast(), size_of::<u64>()) };
        state::with(|state| state.alarm.set_to = None);
        start_timer();
    });
}

unsafe extern "C" fn on_ring(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guard("timer", (), || {
        // Here and not in `on_readable`, which the server also calls while a slow script holds up all the rest.
        let now = clock::steady_ms();
        state::with(|state| state.stall.is_on().then(|| state.stall.turned(now)));
        // SAFETY: the server's own context for this callback.
        pump::run(unsafe { Context::new(ctx) });
    });
    guard("timer", (), || state::with(|state| state.alarm.ringing = false));
}
