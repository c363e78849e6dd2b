//! Background work: leases that have ended, keys that somebody else has freed, time-outs, and grants that nobody has
//! heard of.
//!
//! It runs from the timer only. Redis can also run a job after an event, but does so inside its own loops (for
//! instance, the one over keys that expire), which break when keys are added or removed. The work is idempotent: it
//! looks at the key and does what that calls for, so an event too many costs one look.

use super::clients::WaitState;
use super::grants;
use super::handover;
use super::permission;
use super::renewal;
use super::revocation::{self, RETRY_MS};
use super::settings;
use super::state::{self, Context, State};
use super::timer;
use crate::core::{Due, DueFilter, Kind, QueueId, Revocation, UnixMs, increment};
use crate::server::{self, ContextFlags, Mode, OwnedString, Slot};

/// The number of tasks that run in a row. Then the server serves its clients.
const BATCH: usize = 1000;

/// Does what is due, and sets the timer for the rest.
pub fn run(ctx: &mut Context<'_>) {
    if ctx.flags().contains(ContextFlags::REPLICA) {
        state::with(State::clear_master_state);
    }
    let mut writable = permission::may_write(ctx);
    let mut filter = DueFilter::All;
    let mut left = BATCH;
    while left > 0 {
        writable &= !state::with(|state| state.write_refused);
        filter = if writable { DueFilter::All } else { DueFilter::ReadOnly };
        let now = server::now_ms();
        planted!(TimeOutsWait => if !writable { break });
        let written = if writable { process_writes(ctx, now) } else { 0 };
        let done = written.saturating_add(usize::from(process_one(ctx, filter, now)));
        if done == 0 {
            break;
        }
        left = left.saturating_sub(done);
    }
    if writable {
        timer::set();
    } else {
        planted!(NobodyTriesAgain => return);
        let retry = server::now_ms().saturating_add(RETRY_MS);
        timer::set_at(state::with(|state| {
            let must_tick = state.must_tick();
            if !must_tick {
                state.stall.stop();
            }
            (must_tick || !state.is_idle())
                .then(|| state.waiting.next_due(filter).map_or(retry, |next| next.min(retry)))
        }));
    }
}

/// Processes one closed connection of a session, one revocation and one task of a session, if they are due. Returns how
/// many of them there were.
fn process_writes(ctx: &mut Context<'_>, now: UnixMs) -> usize {
    let (closed, revocation, task) = state::with(|state| {
        let closed = state.sessions.has_closed_connections();
        if let Some(session) = state.sessions.pop_orphan() {
            state.revocations.add(Revocation::of_session(session));
        }
        (closed, state.revocations.first_due(now), state.sessions.pop_due(now))
    });
    if let Some(revocation) = revocation {
        revocation::carry_out(ctx, revocation, now);
    }
    if let Some(task) = task {
        renewal::carry_out(ctx, task, now);
    }
    [closed, revocation.is_some(), task.is_some()].into_iter().filter(|&done| done).count()
}

/// Processes one review or time-out. Returns whether any was due.
fn process_one(ctx: &mut Context<'_>, filter: DueFilter, now: UnixMs) -> bool {
    let keep_until = settings::kept_until(now);
    match state::with(|state| state.waiting.pop_due(now, filter, keep_until)) {
        Some(Due::Review(queue)) => review(ctx, queue, now),
        Some(Due::TimedOut(waiter)) => {
            state::with(|state| increment(&mut state.stats.timed_out));
            planted!(TimedOutInSilence => return true);
            grants::end_wait(waiter, WaitState::Over);
        }
        Some(Due::Dropped) => {}
        None => return false,
    }
    true
}

/// Looks at a lock that may be free, and grants it to the first in line if it is.
fn review(ctx: &mut Context<'_>, queue: QueueId, now: UnixMs) {
    let Some((db, key)) = state::with(|state| state.waiting.lock_of(queue)) else { return };
    ctx.select_db(if planted!(WrongDatabase) { 0 } else { db });
    let name = OwnedString::new(&key);
    let later = now.saturating_add(RETRY_MS);
    if ctx.slot_of(name.as_ref()) != Slot::Ours {
        // The server tells the waiters itself if the slot is gone for good.
        return state::with(|state| state.waiting.review_at(queue, later));
    }
    let looked = ctx.open(name.as_ref(), Mode::Write);
    if !looked.is_empty() {
        // An expired key that the server still shows is looked at again a millisecond later.
        let end = looked.expiry().map(|end| end.max(now));
        planted!(LookedAtOnce => return);
        return state::with(|state| state.waiting.review_at_lease_end(queue, end));
    }
    drop(looked);
    if !permission::accepts_write_to(ctx, name.as_ref(), Kind::Mutex) {
        planted!(RefusedReviewIsOver => return);
        return state::with(|state| state.waiting.review_at(queue, later));
    }
    handover::grant_free_lock(&mut ctx.open(name.as_ref(), Mode::Write), now);
}
