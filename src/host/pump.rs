//! Work that is not a command's own: leases that ended, keys that somebody else freed, deadlines, answers that found
//! nobody.
//!
//! It runs from the timer alone. Redis can also run a job behind an event, but does that inside its own loops (through
//! the keys that expire, for one), which do not bear that keys come and go. It is idempotent: it looks at the key and does
//! what the key calls for, so an event too many costs a look and nothing else.

use super::alarm;
use super::blocked::{self, Stage};
use super::clock;
use super::config;
use super::context::{Context, ContextFlags};
use super::handover;
use super::key::{Key, Mode};
use super::permission::{self, Slot};
use super::renewal;
use super::state::{self, State};
use super::takeback;
use super::text::OwnedText;
use crate::core::{Due, QueueId, TakeBack, Timely, UnixMs, count};

/// How many entries of any kind are worked off at a stretch before the server may attend to its clients again.
const BATCH: usize = 1000;

/// When to try again what the server does not allow now, in milliseconds.
pub const RETRY_MS: i64 = 20;

/// Does what is due, and sets the alarm for the rest.
pub fn run(ctx: Context<'_>) {
    if ctx.flags().contains(ContextFlags::REPLICA) {
        state::with(State::retire);
    }
    let writable = permission::server_takes_writes(ctx);
    let timely = if writable { Timely::All } else { Timely::Unwritten };
    let mut left = BATCH;
    while left > 0 {
        let now = clock::now();
        let written = if writable { write_some(ctx, now) } else { 0 };
        let done = written.saturating_add(usize::from(see_to_one(ctx, timely, now)));
        if done == 0 {
            break;
        }
        left = left.saturating_sub(done);
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

/// Works off one closed connection of a session, one lock to be taken back and one renewal, if they are due. Returns how
/// much that was.
fn write_some(ctx: Context<'_>, now: UnixMs) -> usize {
    let (closed, take_back, duty) = state::with(|state| {
        let closed = state.sessions.has_closed();
        if let Some(session) = state.sessions.next_orphan() {
            state.take_backs.add(TakeBack::of_session(session));
        }
        (closed, state.take_backs.next(now), state.sessions.pop_due(now))
    });
    if let Some(take_back) = take_back {
        takeback::carry_out(ctx, take_back, now);
    }
    if let Some(duty) = duty {
        renewal::carry_out(ctx, duty, now);
    }
    [closed, take_back.is_some(), duty.is_some()].into_iter().filter(|&done| done).count()
}

/// Sees to one lock or one wait, if any is due.
fn see_to_one(ctx: Context<'_>, timely: Timely, now: UnixMs) -> bool {
    let keep_until = config::kept_until(now);
    match state::with(|state| state.room.pop_due(now, timely, keep_until)) {
        Some(Due::Review(queue)) => review(ctx, queue, now),
        Some(Due::TimedOut(connection)) => {
            state::with(|state| count(&mut state.stats.timed_out));
            blocked::answer(connection, Stage::Over);
        }
        Some(Due::Dropped) => {}
        None => return false,
    }
    true
}

/// Looks at a lock that may have come free, and serves the first in line if it has.
fn review(ctx: Context<'_>, queue: QueueId, now: UnixMs) {
    let Some((db, key)) = state::with(|state| state.room.lock_of(queue)) else { return };
    ctx.select_db(db);
    let name = OwnedText::new(ctx, &key);
    let later = now.saturating_add(RETRY_MS);
    if permission::slot_of(ctx, name.text()) != Slot::Ours {
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
