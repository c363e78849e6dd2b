//! Runs the background work: leases that have ended, keys freed by external commands, time-outs, grants that reached no client.
//!
//! It runs from the timer only. Redis can also run a job after an event, but inside its own loops (for instance, the one over
//! keys that expire), which break when keys are added or removed. The work is idempotent: it reads the key and acts on what it
//! finds, so a superfluous event costs one review.

use std::ffi::CStr;
use std::mem;

use super::{restart_after_panic, slot_check};
use crate::core::limits::{MAX_RUN_MS, MAX_TASKS, MIN_TASKS};
use crate::core::{
    BugReport, Cause, Due, DueFilter, Kind, MAX_RETRY_MS, OrBug, RETRY_MS, RecordId, UnixMs, steps, take_bug_report,
};
use crate::host::conditions::suspension;
use crate::host::conditions::write_permission::{self, Intent, Obstacle};
use crate::host::granting::{overdue::process_overdue, renewal, reviews, revocation, share_sessions};
use crate::host::replies::{delivery, messages};
use crate::host::state::{self, Context, Key, Locks, State, Step, pending_replies::pending_id};
use crate::host::{alarm, keys::compat_wake, settings::WAKE_FOREIGN};
use crate::server::{self, ContextFlags, Mode, OwnedString, Server, Stopwatch, ValueType};

/// The name of a run in the latency monitor.
const LATENCY_EVENT: &CStr = c"lock-background";

/// Does the work that is due, and sets the timer for the rest.
pub fn run(ctx: &mut Context<'_>) {
    let stopwatch = Stopwatch::start();
    restart_after_panic::work(ctx, work);
    if let Some(BugReport { count, message }) = take_bug_report(server::monotonic_ms) {
        ctx.warn(&format!("bug: {message}; {count} since the module was loaded, please report it"));
    }
    stopwatch.stop(LATENCY_EVENT);
    ctx.with_state(|state| state.check_invariants());
}

fn work(ctx: &mut Context<'_>) {
    let is_replica = ctx.flags().contains(ContextFlags::REPLICA);
    if is_replica {
        ctx.with_state(State::clear_master_state);
    }
    suspension::update_suspension(ctx, is_replica);
    if messages::publish_postponed(ctx.server(), MAX_TASKS) {
        return alarm::set(ctx.server());
    }
    slot_check::check(ctx);
    // The waits that ended with their connections in this event-loop iteration count as a part of this batch.
    let ended = ctx.with_state(|state| {
        state.run = state.run.wrapping_add(1);
        mem::take(&mut state.ended)
    });
    let mut step = Step::begin();
    let (most, mut tasks) = (MAX_TASKS.max(ended.saturating_add(MIN_TASKS)), ended);
    let mut writable = write_permission::may_write(ctx);
    let end_ms = server::monotonic_ms().saturating_add(MAX_RUN_MS);
    while tasks < most {
        writable &= !ctx.with_state(|state| state.refused.is_refused());
        step.now = server::now_ms();
        let had_batch = step.budget.had_batch();
        let filter = match (writable, had_batch) {
            (false, _) => DueFilter::ReadOnly,
            (true, true) => DueFilter::NoBacklog,
            (true, false) => DueFilter::All,
        };
        let written = if writable { process_writes(ctx, &mut step) } else { 0 };
        let checked = slot_check::check_next(ctx);
        let others = [
            process_disconnected(ctx),
            !had_batch && process_rechecks(ctx, &mut step),
            process_one(ctx, filter, &mut step),
        ];
        let others = others.into_iter().filter(|&done| done).count();
        let done = written.saturating_add(checked).saturating_add(others);
        tasks = tasks.saturating_add(done).saturating_add(step.budget.take_spent());
        if done == 0 || server::monotonic_ms() > end_ms {
            break;
        }
    }
    steps::note_batch(tasks);
    let steady = server::monotonic_ms();
    ctx.with_state(|state| match writable && !state.refused.is_refused() {
        true => state.refused.end(),
        false => state.refused.back_off(steady),
    });
    alarm::set(ctx.server());
}

/// Processes one closed connection of a session, one revocation and one task of a session. Returns how many of them were due.
fn process_writes(ctx: &mut Context<'_>, step: &mut Step) -> usize {
    let (closed, revocation, task) = ctx.with_state(|state| {
        let closed = state.locks.forget_ended() || state.locks.has_closed_connections();
        state.locks.detach_closed();
        let revocation = state.locks.next_revocation(step.now);
        (closed, revocation, state.locks.pop_session_task(step.now, !step.budget.had_batch()))
    });
    if let Some(revocation) = revocation {
        revocation::carry_out(ctx, revocation, step);
    }
    if let Some(task) = task {
        renewal::carry_out(ctx, task, step);
    }
    [closed, revocation.is_some(), task.is_some()].into_iter().filter(|&done| done).count()
}

/// Ends the waits for messages of connections that have closed, in an event-loop iteration at most [`MAX_TASKS`].
pub fn end_closed(server: &Server) {
    while state::with(server, |state| state.ended) < MAX_TASKS && end_one_closed(server) {
        state::with(server, |state| state.ended = state.ended.saturating_add(1));
    }
}

/// Ends the waits for messages whose connection has closed or which are aborted: of one request. If there are
/// none, frees one deferred entry. Returns whether there may be more.
fn process_disconnected(ctx: &mut Context<'_>) -> bool {
    if let Some(next) = ctx.with_state(|state| state.pending.next_aborted()) {
        if let Some(aborted) = next {
            delivery::abort(ctx.server_mut(), aborted);
        }
        return true;
    }
    if let Some(waiter) = ctx.with_state(|state| state.locks.next_aborted()) {
        waiter.into_iter().for_each(|waiter| delivery::abort(ctx.server_mut(), pending_id(waiter)));
        return true;
    }
    end_one_closed(ctx.server()) || ctx.with_state(|state| state.deferred_free.free_one() || state.locks.purge_one())
}

/// Ends the wait of one request whose connection has closed. Returns whether there was one.
fn end_one_closed(server: &Server) -> bool {
    let closed = state::with(server, |state| state.pending.next_of_closed());
    if let Some(closed) = closed {
        delivery::withdraw_request(server, closed);
        state::with(server, |state| state.pending.remove(closed));
    }
    closed.is_some()
}

/// Checks one lock whose shares with sessions external commands may have removed. Returns whether there was one.
fn process_rechecks(ctx: &mut Context<'_>, step: &mut Step) -> bool {
    let next = ctx.with_state(|State { locks, .. }| locks.first_to_recheck().and_then(|record| locks.lock_of(record)));
    let Some((db, key)) = next else { return false };
    ctx.select_db(db);
    let name = OwnedString::new(&key);
    let key = ctx.open(name.as_ref(), Mode::Read);
    if key.is_empty() {
        share_sessions::end_sessions(&key); // It is unknown which shares external commands have removed.
    } else {
        share_sessions::end_removed(&key, step);
    }
    true
}

/// Processes one review or time-out. Returns whether any was due.
fn process_one(ctx: &mut Context<'_>, filter: DueFilter, step: &mut Step) -> bool {
    match ctx.with_state(|state| state.locks.pop_due(step.now, filter)) {
        Some(Due::Review(queue)) => review(ctx, queue, step),
        Some(Due::TimedOut(entry)) => delivery::time_out(ctx.server_mut(), entry, step.now),
        Some(Due::Dropped | Due::Skipped) => {}
        None => return false,
    }
    true
}

/// Reviews a lock: grants it to the first waiter if it has capacity, or else schedules the next review.
fn review(ctx: &mut Context<'_>, queue: RecordId, step: &mut Step) {
    let found = ctx.with_state(|state| state.locks.lock_of(queue));
    let Some((db, key)) = found.or_bug("a queue that is due does not exist") else { return };
    ctx.select_db(db);
    let name = OwnedString::new(&key);
    let obstacle = match write_permission::prepare(ctx, name.as_ref(), |key| intent_of(key, queue, step.now)) {
        Ok(mut key) => return review_open(&mut key, queue, step),
        Err(obstacle) => obstacle,
    };
    ctx.with_state(|State { locks, .. }| match obstacle {
        Obstacle::Nothing => {}
        Obstacle::Elsewhere => {
            locks.abort(queue); // The server itself redirects blocked clients.
            locks.review_at(queue, step.now.saturating_add(MAX_RETRY_MS));
        }
        Obstacle::Later => locks.review_at(queue, step.now.saturating_add(RETRY_MS)),
    });
}

/// Returns what a review writes to the key of a lock. If nothing, schedules the next review.
fn intent_of(key: &Key<'_, '_>, queue: RecordId, now: UnixMs) -> Intent {
    if key.is_empty() {
        return Intent::Write(Kind::Mutex);
    }
    if key.value_type() == ValueType::SortedSet {
        // An external command may have made a shared lock of it while clients waited for a lock of another kind.
        server::subscribe_to_sorted_sets::<Locks>();
    }
    if share_sessions::has_work(key, queue, now) {
        return Intent::Write(Kind::Shared);
    }
    reviews::schedule(key, queue, now);
    Intent::Nothing
}

/// Reviews a lock whose key may be written.
fn review_open(key: &mut Key<'_, '_>, queue: RecordId, step: &mut Step) {
    let has_ended = key.with_state(|state| state.locks.cause_of(queue)) == Cause::Expiry;
    process_overdue(key, None, step);
    if !key.is_empty() {
        reviews::schedule(key, queue, step.now);
    } else if has_ended && WAKE_FOREIGN.is_on() && !suspension::suspends_grants(key.server()) {
        compat_wake::wake(key); // No waiter has got the lock, so clients of other libraries are woken.
    }
}
