//! The timer of a module.
//!
//! The server's own timers count whole milliseconds from now, and Redis 7.0 may oversleep by up to 100 ms if a client
//! that was blocked or buffered has set one. So the time comes from a Linux timer descriptor in the server's event
//! loop. It is exact, and always wakes the loop. Its callback has no context to write in, so it sets a server timer of
//! zero length, which runs in the same round of the loop and does the work.
//!
//! The server's cron looks after the descriptor: a sandbox or a library between the server and the machine's clock may have
//! it wake the loop too late, or never.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::{io, mem, ptr};

use redis_module::raw;

use super::UnixMs;
use super::clock;
use super::context::Context;
use super::main_thread::MainThread;
use super::module::Module;
use super::panics::catch_panic;

/// The mask for a readable descriptor.
const READABLE: c_int = raw::REDISMODULE_EVENTLOOP_READABLE as c_int;

static TIMER: MainThread<Timer> = MainThread::new(Timer { parts: None, set_for: None, is_new: false });

static SERVER_TIMER: MainThread<ServerTimer> = MainThread::new(ServerTimer::Off);

/// The server timer of zero length.
enum ServerTimer {
    Off,
    /// It was set when the clock showed this time, and runs in the same round of the loop.
    Set {
        id: raw::RedisModuleTimerID,
        at: UnixMs,
    },
    Running,
}

struct Timer {
    parts: Option<Parts>,
    /// The time when the descriptor becomes readable.
    set_for: Option<UnixMs>,
    /// Whether the loop has not gone on since the module was loaded. The descriptor is readable then, which ends this.
    ///
    /// No server timer is set in this time. MODULE LOADEX unloads the module again if a given setting does not exist. Most
    /// servers crash if that fails, and it fails while the module has a server timer.
    is_new: bool,
}

/// What exists from load to unload.
struct Parts {
    descriptor: OwnedFd,
    /// A context of the module's own, in which a server timer can be set.
    ctx: *mut raw::RedisModuleCtx,
}

/// Returns the module's own context, for calls outside of a callback.
pub(super) fn own_context() -> Option<*mut raw::RedisModuleCtx> {
    TIMER.with(|timer| timer.parts.as_ref().map(|parts| parts.ctx))
}

/// Adds the timer to the server's event loop. Called when the module is loaded.
///
/// # Errors
///
/// The error of the system, if the descriptor cannot be created or added.
pub(super) fn install<M: Module>(ctx: &Context<'_, M>) -> io::Result<()> {
    // SAFETY: takes numbers only, and the descriptor it makes is nobody else's.
    let descriptor = unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_REALTIME, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let (fd, data) = (descriptor.as_raw_fd(), ptr::null_mut());
    // SAFETY: the callback has the signature the API asks for and gets no data; `uninstall` takes the descriptor out of
    // the loop before it is closed.
    let added = unsafe { api!(RedisModule_EventLoopAdd(fd, READABLE, Some(on_readable::<M>), data)) };
    if added != raw::REDISMODULE_OK as c_int {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the server's own context; the one made from it is freed in `uninstall`.
    let ctx = unsafe { api!(RedisModule_GetDetachedThreadSafeContext(ctx.raw())) };
    TIMER.with(|timer| {
        let parts = Parts { descriptor, ctx };
        set_descriptor(Some(&parts), 0);
        *timer = Timer { parts: Some(parts), set_for: None, is_new: true };
    });
    SERVER_TIMER.with(|timer| *timer = ServerTimer::Off);
    Ok(())
}

/// Removes the timer from the server's event loop. Called when the module is unloaded.
pub(super) fn uninstall() {
    drop(TIMER.with(|timer| timer.parts.take()));
}

impl Drop for Parts {
    fn drop(&mut self) {
        // SAFETY: put in by `install`; nothing is called after this.
        unsafe {
            api!(RedisModule_EventLoopDel(self.descriptor.as_raw_fd(), READABLE));
            api!(RedisModule_FreeThreadSafeContext(self.ctx));
        }
    }
}

/// Returns whether the server's loop has not gone on since the module was loaded.
fn is_new() -> bool {
    TIMER.with(|timer| timer.is_new)
}

/// Sets the timer, so that [`Module::timer`] is called at `time` or earlier.
///
/// A timer that is set to an earlier time stays as it is, which is cheaper than moving it each time.
pub fn set_timer<M: Module>(time: UnixMs) {
    if time <= clock::now_ms() {
        return run_timer_soon::<M>();
    }
    TIMER.with(|timer| {
        if timer.set_for.is_none_or(|set_for| set_for > time) {
            timer.set_for = Some(time);
            timer.set_descriptor(time);
        }
    });
}

/// Sets the timer, so that [`Module::timer`] is called in this round of the loop, or as soon as the loop gets to it. While
/// the module is being loaded, that is the next round.
pub fn run_timer_soon<M: Module>() {
    TIMER.with(|timer| {
        if timer.set_for.replace(0) != Some(0) {
            // Wakes the loop, in case it has decided to sleep already.
            timer.set_descriptor(0);
        }
    });
    start_server_timer::<M>();
}

/// Runs `on_timer` in this round of the loop, unless it is set or running already. A server timer that is set while one
/// runs would be a millisecond late.
fn start_server_timer<M: Module>() {
    if is_new() {
        return;
    }
    let Some(ctx) = own_context() else { return };
    let late = SERVER_TIMER.with(|timer| match *timer {
        ServerTimer::Off => Some(None),
        // The clock was set back before it could run, and the server would let it wait for so long.
        ServerTimer::Set { id, at } if clock::now_ms() < at => Some(Some(id)),
        ServerTimer::Set { .. } | ServerTimer::Running => None,
    });
    let Some(late) = late else { return };
    if let Some(id) = late {
        // SAFETY: the context that the timer was set in; the timer is set, and not running.
        unsafe { api!(RedisModule_StopTimer(ctx, id, ptr::null_mut())) };
    }
    let at = clock::now_ms();
    // SAFETY: the context is the module's own; the callback has the signature the API asks for and gets no data. The
    // server does not unload the module while the timer runs.
    let id = unsafe { api!(RedisModule_CreateTimer(ctx, 0, Some(on_timer::<M>), ptr::null_mut())) };
    SERVER_TIMER.with(|timer| *timer = ServerTimer::Set { id, at });
}

/// Runs what is overdue. Called when the server's cron runs.
pub(super) fn catch_up<M: Module>() {
    let is_overdue = TIMER.with(|timer| {
        timer.loop_goes_on();
        timer.is_due()
    });
    if is_overdue {
        start_server_timer::<M>();
    }
}

fn set_descriptor(parts: Option<&Parts>, time: UnixMs) {
    let Some(parts) = parts else { return };
    let (seconds, ms) = (time.div_euclid(1000), time.rem_euclid(1000));
    // Zero would disarm the timer.
    let nanoseconds = ms.saturating_mul(1_000_000).max(1);
    let at = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds },
    };
    // The descriptor also becomes readable when the clock is set, so that what is due by the new time is processed.
    let flags = libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET;
    // SAFETY: an open descriptor of this kind and a valid time; it fails only for invalid ones.
    unsafe { libc::timerfd_settime(parts.descriptor.as_raw_fd(), flags, &raw const at, ptr::null_mut()) };
}

/// Leaves the descriptor readable, which is read when the work is done: so it is called again should the server not run its
/// timer in this round. Does not do the work itself: the server also calls this while a slow script holds up everything
/// else.
unsafe extern "C" fn on_readable<M: Module>(_fd: c_int, _data: *mut c_void, _mask: c_int) {
    catch_panic("timer descriptor", (), || {
        let has_work = TIMER.with(|timer| !timer.loop_goes_on() || timer.is_due());
        if has_work {
            start_server_timer::<M>();
        }
    });
}

unsafe extern "C" fn on_timer<M: Module>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    SERVER_TIMER.with(|timer| *timer = ServerTimer::Running);
    catch_panic("timer", (), || {
        TIMER.with(Timer::acknowledge);
        // SAFETY: the server's own context for this callback.
        M::timer(&mut unsafe { Context::new(ctx) });
    });
    SERVER_TIMER.with(|timer| *timer = ServerTimer::Off);
}

impl Timer {
    fn set_descriptor(&self, time: UnixMs) {
        // A new one is readable until the loop goes on, which sets it.
        if !self.is_new {
            set_descriptor(self.parts.as_ref(), time);
        }
    }

    /// Notes that the loop has gone on since the module was loaded. Returns whether that is news.
    fn loop_goes_on(&mut self) -> bool {
        let was_new = mem::take(&mut self.is_new);
        if was_new {
            match self.set_for {
                Some(time) => self.set_descriptor(time),
                None => self.acknowledge(),
            }
        }
        was_new
    }

    fn is_due(&self) -> bool {
        self.set_for.is_some_and(|set_for| set_for <= clock::now_ms())
    }

    /// Nothing is set any more, and the descriptor is not readable.
    fn acknowledge(&mut self) {
        self.set_for = None;
        let Some(parts) = &self.parts else { return };
        let mut expirations = 0u64;
        // SAFETY: reads eight bytes into eight bytes, without waiting. Whether it succeeds, tells of a step of the clock, or
        // finds that the time has not come, the descriptor is not readable any more.
        unsafe { libc::read(parts.descriptor.as_raw_fd(), (&raw mut expirations).cast(), size_of::<u64>()) };
    }
}
