//! Work that is not a command's own: leases that ended, keys that somebody else freed, deadlines, answers that found
//! nobody.
//!
//! It runs from the timer, and where the server can queue work behind a command, from there. It is idempotent: it looks
//! at the key and does what the key calls for, so an event too many costs a look and nothing else.

use std::ffi::c_void;
use std::{mem, ptr};

use redis_module::raw;

use super::alarm;
use super::blocked::{self, Stage};
use super::clock;
use super::config;
use super::context::Context;
use super::guard::guard;
use super::handover;
use super::key::{Key, Mode};
use super::permission;
use super::renewal;
use super::state;
use super::takeback;
use super::text::OwnedText;
use crate::core::{Due, QueueId, Timely, UnixMs, count};

/// How much is done at a stretch before the server may attend to its clients again.
const BATCH: usize = 1000;

/// When to try again what the server does not allow now, in milliseconds.
pub const RETRY_MS: i64 = 20;

/// Has the pump run as soon as the server can: behind the command that is running, else in the next loop round. The alarm
/// is set even so: Redis 8 leaves a job that was queued while it drops fields of a Hash until the next command comes.
pub fn queue(ctx: Context<'_>) {
    if has_api!(RedisModule_AddPostNotificationJob) {
        queue_job(ctx);
    }
    alarm::set();
}

fn queue_job(ctx: Context<'_>) {
    if state::with(|state| mem::replace(&mut state.pump_queued, true)) {
        return;
    }
    // SAFETY: the callback has the signature the API asks for and gets no data.
    let answer = unsafe {
        let nothing = ptr::null_mut();
        api!(RedisModule_AddPostNotificationJob(ctx.raw(), Some(on_job), nothing, Some(on_job_freed)))
    };
    if answer != raw::REDISMODULE_OK as i32 {
        state::with(|state| state.pump_queued = false);
    }
}

unsafe extern "C" fn on_job(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guard("job", (), || {
        state::with(|state| state.pump_queued = false);
        // SAFETY: the server's own context for this callback.
        run(unsafe { Context::new(ctx) });
    });
}

unsafe extern "C" fn on_job_freed(_data: *mut c_void) {}

/// Does what is due, and sets the alarm for the rest.
pub fn run(ctx: Context<'_>) {
    let writable = permission::server_takes_writes(ctx);
    let timely = if writable { Timely::All } else { Timely::Unwritten };
    for _ in 0..BATCH {
        let now = clock::now();
        let wrote = writable && write_one(ctx, now);
        let keep_until = config::kept_until(now);
        match state::with(|state| state.room.pop_due(now, timely, keep_until)) {
            Some(Due::Review(queue)) => review(ctx, queue, now),
            Some(Due::TimedOut(connection)) => {
                state::with(|state| count(&mut state.stats.timed_out));
                blocked::answer(connection, Stage::Over);
            }
            Some(Due::Dropped) => {}
            None if wrote => {}
            None => break,
        }
    }
    if writable {
        alarm::set();
    } else {
        let retry = clock::now().saturating_add(RETRY_MS);
        alarm::set_for(state::with(|state| {
            (!state.is_idle()).then(|| state.room.next_due(timely).map_or(retry, |next| next.min(retry)))
        }));
    }
}

/// Takes one lock back and renews one lease, if any are due. Answers whether there was anything to do.
fn write_one(ctx: Context<'_>, now: UnixMs) -> bool {
    let (take_back, renewal) = state::with(|state| (state.take_backs.next(now), state.sessions.pop_due(now)));
    let wrote = take_back.is_some() || renewal.is_some();
    if let Some(take_back) = take_back {
        takeback::carry_out(ctx, take_back, now);
    }
    if let Some(session) = renewal {
        renewal::carry_out(ctx, session, now);
    }
    wrote
}

/// Looks at a lock that may have come free, and serves the first in line if it has.
fn review(ctx: Context<'_>, queue: QueueId, now: UnixMs) {
    let Some((db, key)) = state::with(|state| state.room.lock_of(queue)) else { return };
    ctx.select_db(db);
    let name = OwnedText::new(ctx, &key);
    let later = now.saturating_add(RETRY_MS);
    if !permission::slot_is_ours(ctx, name.text()) {
        // The server tells the waiters itself if the slot is gone for good.
        return state::with(|state| state.room.review_at(queue, later));
    }
    let looked = Key::open(ctx, name.text(), Mode::Write);
    if !looked.is_empty() {
        // An expired key that the server still shows is looked at again in a moment.
        let end = looked.expiry().map(|end| end.max(now));
        return state::with(|state| state.room.review_after(queue, end));
    }
    drop(looked);
    if !permission::write_is_welcome(ctx, name.text(), None) {
        return state::with(|state| state.room.review_at(queue, later));
    }
    handover::serve(&mut Key::open(ctx, name.text(), Mode::Write), now);
}
