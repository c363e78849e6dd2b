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
    self, BugReport, Cause, Kind, MAX_RETRY_MS, OrBug, RETRY_MS, RecordId, UnixMs, steps, take_bug_report,
};
use crate::host::conditions::suspension;
use crate::host::conditions::write_permission::{self, Intent, Obstacle};
use crate::host::granting::{overdue::process_overdue, renewal, reviews, revocation, share_sessions};
use crate::host::replies::{delivery, messages};
use crate::host::state::pending_replies::{PendingReplyId, pending_id};
use crate::host::state::{self, Context, Key, Locks, State, Step};
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
        state.locks.begin_run();
        mem::take(&mut state.ended)
    });
    let mut step = Step::begin(ctx.server());
    let (most, mut tasks) = (MAX_TASKS.max(ended.saturating_add(MIN_TASKS)), ended);
    let mut writable = write_permission::may_write(ctx);
    let end_ms = server::monotonic_ms().saturating_add(MAX_RUN_MS);
    while tasks < most && server::monotonic_ms() <= end_ms {
        writable &= !ctx.with_state(|state| state.refused.is_refused());
        step.begin_task(ctx.server());
        let Some(task) = next_task(ctx.server(), writable, step.now) else { break };
        carry_out(ctx, task, &mut step);
        tasks = tasks.saturating_add(1).saturating_add(mem::take(&mut step.spent));
    }
    steps::note_batch(tasks);
    let steady = server::monotonic_ms();
    ctx.with_state(|state| match writable && !state.refused.is_refused() {
        true => state.refused.end(),
        false => state.refused.back_off(steady),
    });
    alarm::set(ctx.server());
}

/// A task of the background work.
enum Task {
    Lock(core::Task),
    /// End the wait for a message of this request, which is aborted.
    Abort(PendingReplyId),
    /// A step of a scan. There is nothing left to do.
    Done,
}

/// Returns a task that is due at `now`, or without `may_write` one that writes to no key: of locks, and of the requests that are
/// notified by message, in turn.
fn next_task(server: &Server, may_write: bool, now: UnixMs) -> Option<Task> {
    let of_messages = |server: &Server| {
        let aborted = state::with(server, |state| state.pending.next_aborted());
        let aborted = aborted.map(|aborted| aborted.map_or(Task::Done, Task::Abort));
        aborted.or_else(|| end_one_closed(server).then_some(Task::Done))
    };
    let of_locks = |server: &Server| state::with(server, |state| state.locks.next_task(now, may_write)).map(Task::Lock);
    let is_turn_of_messages = state::with(server, |state| {
        state.turn = state.turn.wrapping_add(1);
        state.turn % 4 == 0
    });
    if is_turn_of_messages {
        of_messages(server).or_else(|| of_locks(server))
    } else {
        of_locks(server).or_else(|| of_messages(server))
    }
}

fn carry_out(ctx: &mut Context<'_>, task: Task, step: &mut Step) {
    match task {
        Task::Lock(core::Task::Review(queue)) => review(ctx, queue, step),
        Task::Lock(core::Task::Recheck(record)) => recheck(ctx, record, step),
        Task::Lock(core::Task::Revoke(hold)) => revocation::carry_out(ctx, hold, step),
        Task::Lock(core::Task::Renew(hold)) => renewal::carry_out(ctx, hold, false, step),
        Task::Lock(core::Task::Check(hold)) => renewal::carry_out(ctx, hold, true, step),
        Task::Lock(core::Task::CheckSlot(record)) => slot_check::check_lock(ctx, record),
        Task::Lock(core::Task::TimedOut(entry)) => delivery::time_out(ctx.server_mut(), entry, step.now),
        Task::Lock(core::Task::Aborted(waiter)) => delivery::abort(ctx.server_mut(), pending_id(waiter)),
        Task::Abort(id) => delivery::abort(ctx.server_mut(), id),
        Task::Lock(core::Task::Done) | Task::Done => {}
    }
}

/// Ends the waits for messages of connections that have closed, in an event-loop iteration at most [`MAX_TASKS`].
pub fn end_closed(server: &Server) {
    while state::with(server, |state| state.ended) < MAX_TASKS && end_one_closed(server) {
        state::with(server, |state| state.ended = state.ended.saturating_add(1));
    }
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

/// Checks the next shares of a lock that external commands may have removed.
fn recheck(ctx: &mut Context<'_>, record: RecordId, step: &mut Step) {
    let Some((db, key)) = ctx.with_state(|state| state.locks.lock_of(record)) else { return };
    ctx.select_db(db);
    let name = OwnedString::new(&key);
    let key = ctx.open(name.as_ref(), Mode::Read);
    if key.is_empty() {
        share_sessions::end_sessions(&key); // It is unknown which shares external commands have removed.
    } else {
        share_sessions::end_removed(&key, step);
    }
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
        Obstacle::Refused => locks.review_soon(queue, locks.cause_of(queue)),
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
