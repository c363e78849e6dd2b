//! Background work: leases that have ended, keys that somebody else has freed, time-outs, and grants that nobody has
//! heard of.
//!
//! It runs from the timer only. Redis can also run a job after an event, but does so inside its own loops (for
//! instance, the one over keys that expire), which break when keys are added or removed. The work is idempotent: it
//! looks at the key and does what that calls for, so an event too many costs one look.

use std::ffi::CStr;
use std::mem;

use super::foreign;
use super::fresh_start;
use super::grants;
use super::notify;
use super::overdue::process_overdue;
use super::permission;
use super::recovery;
use super::renewal;
use super::reviews;
use super::revocation;
use super::settings::WAKE_FOREIGN;
use super::shares;
use super::slots;
use super::state::{self, Context, Locks, State};
use super::timer;
use super::waiters::entry_id;
use crate::core::{Cause, Due, DueFilter, Kind, MAX_RETRY_MS, QueueId, RETRY_MS, Revocation, UnixMs, steps};
use crate::server::{self, ContextFlags, Mode, OwnedString, Slot, Stopwatch, ValueType};

/// The number of tasks that run in a row. Then the server serves its clients.
const BATCH: usize = 1000;

/// The time after which no other task is begun, in milliseconds. Then the server serves its clients.
const MAX_RUN_MS: i64 = 4;

/// The number of tasks that run in any case, however much has ended with connections in the same round.
const LEAST: usize = 100;

/// The name of a run in the latency monitor.
const LATENCY_EVENT: &CStr = c"lock-background";

/// Does what is due, and sets the timer for the rest.
pub fn run(ctx: &mut Context<'_>) {
    let stopwatch = Stopwatch::start();
    fresh_start::work(ctx, work);
    stopwatch.stop(LATENCY_EVENT);
}

fn work(ctx: &mut Context<'_>) {
    let is_replica = ctx.flags().contains(ContextFlags::REPLICA);
    if is_replica {
        state::with(State::clear_master_state);
    }
    recovery::follow(ctx, is_replica);
    if notify::publish_postponed(BATCH) {
        return timer::set();
    }
    slots::look(ctx);
    // What ended with connections in this round was a part of this stretch.
    let ended = state::with(|state| {
        (state.spent, state.had_batch, state.run) = (0, false, state.run.wrapping_add(1));
        mem::take(&mut state.ended)
    });
    let (most, mut tasks) = (BATCH.max(ended.saturating_add(LEAST)), ended);
    let mut writable = permission::may_write(ctx);
    let end_ms = server::monotonic_ms().saturating_add(MAX_RUN_MS);
    while tasks < most {
        let (is_refused, had_batch) = state::with(|state| (state.refused.is_refused(), state.had_batch));
        writable &= !is_refused;
        let filter = match (writable, had_batch) {
            (false, _) => DueFilter::ReadOnly,
            (true, true) => DueFilter::NoBacklog,
            (true, false) => DueFilter::All,
        };
        let now = server::now_ms();
        let written = if writable { process_writes(ctx, now) } else { 0 };
        let looked = slots::look_at_next(ctx);
        let others = [process_left(), !had_batch && process_doubtful(ctx, now), process_one(ctx, filter, now)];
        let others = others.into_iter().filter(|&done| done).count();
        let done = written.saturating_add(looked).saturating_add(others);
        let spent = state::with(|state| mem::take(&mut state.spent));
        tasks = tasks.saturating_add(done).saturating_add(spent);
        if done == 0 || server::monotonic_ms() > end_ms {
            break;
        }
    }
    steps::note_stretch(tasks);
    if writable && !state::with(|state| state.refused.is_refused()) {
        state::with(|state| state.refused.end());
        timer::set();
    } else {
        let (now, steady) = (server::now_ms(), server::monotonic_ms());
        let retry = now.saturating_add(state::with(|state| state.refused.back_off(steady)));
        timer::set_at(state::with(|state| {
            let must_tick = state.must_tick();
            if !must_tick {
                state.stall.stop();
            }
            if state.must_run_soon() {
                return Some(UnixMs::MIN); // Those who are lost are told so at once, however many they are.
            }
            (must_tick || !state.is_idle())
                .then(|| state.waiting.next_due(DueFilter::ReadOnly).map_or(retry, |next| next.min(retry)))
        }));
    }
}

/// Processes one closed connection of a session, one revocation and one task of a session, if they are due. Returns how
/// many of them there were.
fn process_writes(ctx: &mut Context<'_>, now: UnixMs) -> usize {
    let (closed, revocation, task) = state::with(|state| {
        let closed = state.sessions.forget_ended() || state.sessions.has_closed_connections();
        if let Some(session) = state.sessions.pop_orphan() {
            state.revocations.add(Revocation::of_session(session));
        }
        (closed, state.revocations.first_due(now), state.sessions.pop_due(now, !state.had_batch))
    });
    if let Some(revocation) = revocation {
        revocation::carry_out(ctx, revocation, now);
    }
    if let Some(task) = task {
        renewal::carry_out(ctx, task, now);
    }
    [closed, revocation.is_some(), task.is_some()].into_iter().filter(|&done| done).count()
}

/// Ends the waits of connections that have closed, of those that are told by message: the first stretch of them, however
/// many connections close in a round of the loop.
pub fn end_closed() {
    while state::with(|state| state.ended) < BATCH && end_one_closed() {
        state::with(|state| state.ended = state.ended.saturating_add(1));
    }
}

/// Ends the waits of requests that are told by message, whose connection has closed or which are lost: of one request, or
/// of one place that all its copies share. Returns whether there may be more.
fn process_left() -> bool {
    if let Some(passed) = state::with(|state| state.waiters.next_lost()) {
        if let Some(lost) = passed {
            grants::lose(lost);
        }
        return true;
    }
    if let Some(waiters) = state::with(|state| state.waiting.next_lost()) {
        state::with(|state| state.spend(waiters.len()));
        waiters.into_iter().for_each(|waiter| grants::lose(entry_id(waiter)));
        return true;
    }
    end_one_closed() || state::with(|state| state.remains.drop_one())
}

fn end_one_closed() -> bool {
    let closed = state::with(|state| state.waiters.next_of_closed());
    if let Some(closed) = closed {
        grants::leave(closed);
        state::with(|state| state.waiters.remove(closed));
    }
    closed.is_some()
}

/// Looks at one lock of which others may have removed shares with sessions. Returns whether there was one.
fn process_doubtful(ctx: &mut Context<'_>, now: UnixMs) -> bool {
    let Some((db, key)) = state::with(|state| state.sessions.first_doubtful()) else { return false };
    ctx.select_db(db);
    let name = OwnedString::new(&key);
    let key = ctx.open(name.as_ref(), Mode::Read);
    if key.is_empty() {
        shares::end_sessions(&key); // Which of them were taken away cannot be known any more.
    } else {
        shares::end_removed(&key, now);
    }
    true
}

/// Processes one review or time-out. Returns whether any was due.
fn process_one(ctx: &mut Context<'_>, filter: DueFilter, now: UnixMs) -> bool {
    match state::with(|state| state.waiting.pop_due(now, filter)) {
        Some(Due::Review(queue)) => review(ctx, queue, now),
        Some(Due::TimedOut(request)) => grants::time_out(request, now),
        Some(Due::Dropped | Due::PassedBy) => {}
        None => return false,
    }
    true
}

/// Looks at a lock that may be free, and grants it to the first in line if it is.
fn review(ctx: &mut Context<'_>, queue: QueueId, now: UnixMs) {
    let Some((db, key)) = state::with(|state| state.waiting.lock_of(queue)) else { return };
    ctx.select_db(db);
    let name = OwnedString::new(&key);
    let later = now.saturating_add(RETRY_MS);
    match permission::slot_of(ctx, name.as_ref()) {
        Slot::Ours => {}
        slot => {
            // The server tells blocked clients itself if the slot is gone for good.
            if slot == Slot::Elsewhere {
                slots::lose_waiters(queue);
            }
            let later = if slot == Slot::Elsewhere { now.saturating_add(MAX_RETRY_MS) } else { later };
            return state::with(|state| state.waiting.review_at(queue, later));
        }
    }
    let looked = ctx.open(name.as_ref(), Mode::Write);
    if looked.is_in_use() {
        return state::with(|state| state.waiting.review_at(queue, later));
    }
    if looked.value_type() == ValueType::SortedSet {
        // It may have come under those who wait.
        server::subscribe_to_sorted_sets::<Locks>();
    }
    let held_as = if looked.is_empty() { Kind::Mutex } else { Kind::Shared };
    if held_as == Kind::Shared && !shares::has_work(&looked, queue, now) {
        return reviews::schedule(&looked, queue, now);
    }
    drop(looked);
    if !permission::accepts_write_to(ctx, name.as_ref(), held_as) {
        return state::with(|state| state.waiting.review_at(queue, later));
    }
    let has_ended = state::with(|state| state.waiting.cause_of(queue)) == Cause::Expiry;
    let mut key = ctx.open(name.as_ref(), Mode::Write);
    if key.is_in_use() {
        return state::with(|state| state.waiting.review_at(queue, later));
    }
    process_overdue(&mut key, None, now);
    if !key.is_empty() {
        reviews::schedule(&key, queue, now);
    } else if has_ended && WAKE_FOREIGN.is_on() && !recovery::holds_back_grant() {
        foreign::wake(&mut key); // Those who were in line have left.
    }
}
