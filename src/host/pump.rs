//! Work that is not a command's own: leases that ended, keys that somebody else freed, deadlines, answers that found
//! nobody.
//!
//! It runs from the timer, and where the server can queue work behind a command, from there. It is idempotent: it looks
//! at the key and does what the key calls for, so an event too many costs a look and nothing else.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::alarm;
use super::blocked::{self, Granting, Stage, Undelivered};
use super::clock;
use super::context::Context;
use super::effect;
use super::guard::guard;
use super::handover::hand_over;
use super::key::{Key, Mode};
use super::permission;
use super::state;
use super::text::OwnedText;
use crate::core::{Cause, Due, Lock, QueueId, Timely, UnixMs, count};

/// How much is done at a stretch before the server may attend to its clients again.
const BATCH: usize = 1000;

/// When to try again what the server does not allow now, in milliseconds.
const RETRY_MS: i64 = 20;

/// Has the pump run as soon as the server can: behind the command that is running, else in the next loop round.
pub fn queue(ctx: Context<'_>) {
    if has_api!(RedisModule_AddPostNotificationJob) {
        if state::with(|state| std::mem::replace(&mut state.pump_queued, true)) {
            return;
        }
        // SAFETY: the callback has the signature the API asks for and gets no data.
        let answer = unsafe {
            let nothing = ptr::null_mut();
            api!(RedisModule_AddPostNotificationJob(ctx.raw(), Some(on_job), nothing, Some(on_job_freed)))
        };
        if answer == raw::REDISMODULE_OK as i32 {
            return;
        }
        state::with(|state| state.pump_queued = false);
    }
    alarm::set();
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
    let timely = if writable { Timely::All } else { Timely::DeadlinesOnly };
    for _ in 0..BATCH {
        let now = clock::now();
        if let Some(granting) = writable.then(|| next_undelivered(now)).flatten() {
            take_back(ctx, granting, now);
            continue;
        }
        match state::with(|state| state.room.pop_due(now, timely)) {
            Some(Due::Review(queue)) => review(ctx, queue, now),
            Some(Due::TimedOut(connection)) => {
                state::with(|state| count(&mut state.stats.timed_out));
                blocked::answer(connection, Stage::Over);
            }
            None => break,
        }
    }
    if writable {
        alarm::set();
    } else {
        let retry = clock::now().saturating_add(RETRY_MS);
        alarm::set_for(state::with(|state| {
            let idle = state.room.is_empty() && state.undelivered.is_empty();
            (!idle).then(|| state.room.next_due(timely).map_or(retry, |deadline| deadline.min(retry)))
        }));
    }
}

/// Looks at a lock that may have come free, and serves the first in line if it has.
fn review(ctx: Context<'_>, queue: QueueId, now: UnixMs) {
    let Some((db, key)) = state::with(|state| state.room.lock_of(queue)) else { return };
    ctx.select_db(db);
    let name = OwnedText::new(ctx, &key);
    let later = now.saturating_add(RETRY_MS);
    if !permission::slot_is_ours(ctx, *name) {
        // The server tells the waiters itself if the slot is gone for good.
        return state::with(|state| state.room.review_at(queue, later));
    }
    let looked = Key::open(ctx, *name, Mode::Write);
    if !looked.is_empty() {
        // An expired key that the server still shows is looked at again in a moment.
        let end = looked.expiry().map(|end| end.max(now));
        return state::with(|state| state.room.review_after(queue, end));
    }
    drop(looked);
    if !permission::write_is_welcome(ctx, *name, None) {
        return state::with(|state| state.room.review_at(queue, later));
    }
    let cause = state::with(|state| state.room.cause_of(queue));
    hand_over(&mut Key::open(ctx, *name, Mode::Write), queue, cause, now);
}

fn next_undelivered(now: UnixMs) -> Option<Granting> {
    state::with(|state| {
        let due = state.undelivered.iter().position(|undelivered| undelivered.due <= now)?;
        Some(state.undelivered.swap_remove(due).granting)
    })
}

/// Takes a lock back from a client that was gone before it heard of it.
fn take_back(ctx: Context<'_>, granting: Granting, now: UnixMs) {
    ctx.select_db(granting.db);
    let name = OwnedText::new(ctx, &granting.key);
    let still_theirs = |mode| {
        let key = Key::open(ctx, *name, mode);
        let theirs = match key.read() {
            Ok(Lock::Held(held)) => *held.owner == *granting.owner && held.kind == granting.kind && held.holds == 1,
            _ => false,
        };
        theirs.then_some(key)
    };
    if still_theirs(Mode::Read).is_none() {
        return;
    }
    if !permission::slot_is_ours(ctx, *name) || !permission::write_is_welcome(ctx, *name, Some(granting.kind)) {
        let due = now.saturating_add(RETRY_MS);
        return state::with(|state| state.undelivered.push(Undelivered { granting, due }));
    }
    let Some(mut key) = still_theirs(Mode::Write) else { return };
    let queue = state::with(|state| state.room.queue_of(granting.db, &granting.key));
    let handed = queue.is_some_and(|queue| hand_over(&mut key, queue, Cause::Disconnect, now));
    if !handed {
        effect::free(&mut key);
    }
}
