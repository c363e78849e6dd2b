//! When the module's timer fires.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use redis_module::raw;

use crate::server::UnixMs;
use crate::server::clock;

/// The mask for a readable descriptor.
pub(super) const READABLE: c_int = raw::REDISMODULE_EVENTLOOP_READABLE as c_int;

/// The server timer of zero length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum ServerTimer {
    Off,
    /// The timer with this number was set at this time, and runs in the same event-loop iteration.
    Set(raw::RedisModuleTimerID, UnixMs),
    Running,
}

/// The timer of a module.
pub(in crate::server) struct Timer {
    /// `None` while the module is not loaded.
    descriptor: Option<Descriptor>,
    /// The time when the descriptor becomes readable, `None` if the timer is not set.
    set_for: Option<UnixMs>,
    /// Whether the event loop has not begun an iteration since the module was loaded. The descriptor is readable until then, so
    /// that the loop calls the module. No server timer is set in this time: MODULE LOADEX unloads the module again if a given
    /// setting does not exist, which fails while the module has a server timer, and then most servers crash.
    pub(super) is_new: bool,
}

impl Timer {
    pub(in crate::server) const fn new() -> Self {
        Self { descriptor: None, set_for: None, is_new: false }
    }

    /// Returns a timer that is not set, and that waits for the first iteration of the event loop.
    pub(super) fn installed(descriptor: Descriptor) -> Self {
        descriptor.set(0);
        Self { descriptor: Some(descriptor), set_for: None, is_new: true }
    }

    /// Sets the timer to a time, unless it is set to an earlier one.
    pub(super) fn set(&mut self, time: UnixMs) {
        if self.set_for.is_none_or(|set_for| set_for > time) {
            self.set_for = Some(time);
            self.set_descriptor(time);
        }
    }

    /// Records that an iteration of the event loop has begun. Returns whether it is the first one since the module was loaded.
    pub(super) fn iteration_begins(&mut self) -> bool {
        let was_new = mem::take(&mut self.is_new);
        if was_new {
            match self.set_for {
                Some(time) => self.set_descriptor(time),
                None => self.acknowledge(),
            }
        }
        was_new
    }

    /// Returns whether the timer is set to a time that has come.
    pub(super) fn is_due(&self) -> bool {
        self.set_for.is_some_and(|set_for| set_for <= clock::now_ms())
    }

    /// Ends the setting of the timer. The descriptor is not readable afterwards.
    pub(super) fn acknowledge(&mut self) {
        self.set_for = None;
        if let Some(descriptor) = &self.descriptor {
            descriptor.read();
        }
    }

    fn set_descriptor(&self, time: UnixMs) {
        // The descriptor of a new timer stays readable until the first iteration of the event loop, which sets it.
        if let Some(descriptor) = self.descriptor.as_ref().filter(|_| !self.is_new) {
            descriptor.set(time);
        }
    }
}

/// A timer descriptor of Linux in the server's event loop. Dropping it removes it from the loop and closes it.
pub(super) struct Descriptor(OwnedFd);

impl Descriptor {
    /// Creates a descriptor, and adds it to the event loop with `add`, which returns whether the server has taken it.
    pub(super) fn create(add: impl FnOnce(RawFd) -> bool) -> io::Result<Self> {
        // SAFETY: takes numbers only, and nothing else owns the descriptor that it creates.
        let descriptor = unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_REALTIME, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        if add(descriptor.as_raw_fd()) { Ok(Self(descriptor)) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes the descriptor readable at a time, or now if the time has come.
    fn set(&self, time: UnixMs) {
        let (seconds, ms) = (time.div_euclid(1000), time.rem_euclid(1000));
        // Below a billion, so it does not saturate. Zero would disarm the timer.
        let nanoseconds = ms.saturating_mul(1_000_000).max(1);
        let at = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds },
        };
        // The descriptor also becomes readable when the clock is set, so that the timer fires if its time has come by the new clock.
        let flags = libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET;
        // SAFETY: an open descriptor of this kind and a valid time; the call fails only for invalid ones.
        let result = unsafe { libc::timerfd_settime(self.0.as_raw_fd(), flags, &raw const at, ptr::null_mut()) };
        debug_assert_eq!(result, 0, "the timer cannot be set: {}", io::Error::last_os_error());
    }

    /// Reads the descriptor, which is not readable afterwards.
    fn read(&self) {
        let mut expirations = 0u64;
        // SAFETY: reads eight bytes into eight bytes, and does not wait. The descriptor is not readable afterwards whether the
        // call succeeds, reports that the clock was set, or fails because the time has not come.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut expirations).cast(), size_of::<u64>()) };
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is in the event loop since it was created, and is open until this function returns.
        unsafe { api!(RedisModule_EventLoopDel(self.0.as_raw_fd(), READABLE)) };
    }
}
