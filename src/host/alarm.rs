//! The one timer: it rings when the next thing falls due, and is silent while nobody waits.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::clock;
use super::context::Context;
use super::guard::guard;
use super::pump;
use super::state;
use crate::core::{Timely, UnixMs};

/// The state of the timer.
pub struct Alarm {
    /// The timer that is armed, and when it rings.
    armed: Option<(raw::RedisModuleTimerID, UnixMs)>,
    /// Wake-ups that the server has not run yet; the code they call must not be unloaded before.
    wake_ups: usize,
}

impl Alarm {
    pub const fn new() -> Self {
        Self { armed: None, wake_ups: 0 }
    }

    /// Whether the server still holds a call into the module that it does not know of when it unloads one.
    pub fn has_wake_ups(&self) -> bool {
        self.wake_ups > 0
    }
}

/// Sees to it that the alarm rings when the next thing falls due.
pub fn set(ctx: Context<'_>) {
    let next = state::with(|state| {
        let undelivered = (!state.undelivered.is_empty()).then_some(UnixMs::MIN);
        undelivered.or_else(|| state.room.next_due(Timely::All))
    });
    set_for(ctx, next);
}

/// Sees to it that the alarm rings at `time`, or not at all. One that rings earlier is left alone: it finds nothing due
/// and is set anew, which is cheaper than to move it each time.
pub fn set_for(ctx: Context<'_>, time: Option<UnixMs>) {
    let armed = state::with(|state| state.alarm.armed);
    match (armed, time) {
        (None, None) => {}
        (Some((_, rings)), Some(time)) if rings <= time => {}
        _ => {
            if let Some((timer, _)) = armed {
                // SAFETY: the timer is armed: it would have cleared `armed` when it rang.
                unsafe { api!(RedisModule_StopTimer(ctx.raw(), timer, ptr::null_mut())) };
            }
            let armed = time.map(|time| (arm(ctx, time), time));
            state::with(|state| state.alarm.armed = armed);
        }
    }
}

fn arm(ctx: Context<'_>, time: UnixMs) -> raw::RedisModuleTimerID {
    let wait_us = time.saturating_mul(1000).saturating_sub(clock::now_us()).max(0);
    // Rounded up: a timer that rings early would have to be set again.
    let wait_ms = wait_us.saturating_add(999).checked_div(1000).unwrap_or(0);
    // SAFETY: the callback has the signature the API asks for and gets no data.
    let timer = unsafe { api!(RedisModule_CreateTimer(ctx.raw(), wait_ms, Some(on_ring), ptr::null_mut())) };
    wake_event_loop();
    timer
}

/// Redis 7.0 decides how long to sleep before it runs the commands of clients that were blocked or buffered, and then
/// sleeps past a timer that one of them sets, by up to 100 ms. A byte in the server's own pipe ends that sleep.
fn wake_event_loop() {
    if has_api!(RedisModule_AddPostNotificationJob) {
        return; // Redis 7.2 and all Valkey decide afterwards.
    }
    state::with(|state| state.alarm.wake_ups = state.alarm.wake_ups.saturating_add(1));
    // SAFETY: the callback has the signature the API asks for; the module is not unloaded before it ran.
    unsafe { api!(RedisModule_EventLoopAddOneShot(Some(on_wake_up), ptr::null_mut())) };
}

unsafe extern "C" fn on_wake_up(_data: *mut c_void) {
    guard("wake-up", (), || {
        state::with(|state| state.alarm.wake_ups = state.alarm.wake_ups.saturating_sub(1));
    });
}

unsafe extern "C" fn on_ring(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guard("timer", (), || {
        state::with(|state| state.alarm.armed = None);
        // SAFETY: the server's own context for this callback.
        pump::run(unsafe { Context::new(ctx) });
    });
}
