//! Executes the commands that change a lock. The steps are: parse, process overdue work, decide, write, set
//! the timer, reply.
//!
//! The functions that every request needs are `#[inline(always)]`, here and in the other layers: otherwise calls and
//! returns are a seventh of the module's instructions.

use std::marker::PhantomData;

use super::{checks, error_reply, facts::RequestFacts};
use crate::command::{LockCommand, Parsed, check_identity};
use crate::core::{
    BlockTimeout, Budget, Cause, Error, HoldKey, Kind, Lease, Lock, Request, SessionLock, UnixMs, Verdict, WaiterId,
    Withdrawal, Write, admit, increment,
};
use crate::host::background::alarm;
use crate::host::granting::delivery::{self, mark_holder_notified};
use crate::host::granting::{handover, overdue::process_overdue, reviews};
use crate::host::keys::lock_handles::{LockHandles, hold_key_of, share_hold_key};
use crate::host::keys::{effects, lock_key, share_key};
use crate::host::sessions::share_sessions;
use crate::host::settings;
use crate::host::state::{Context, Key, Locks, State};
use crate::host::waiting::enqueue::{self, Waits};
use crate::host::waiting::messages::Subject;
use crate::server::{self, Arguments, Mode, RunCommand, StringRef, ValueType};

/// Executes the command `C`.
pub struct Execute<C>(PhantomData<C>);

impl<C: LockCommand + 'static> RunCommand<Locks> for Execute<C> {
    const NAME: &'static str = C::NAME;

    #[inline(always)]
    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        let outcome = execute::<C>(ctx, arguments);
        alarm::set(ctx.server());
        match outcome {
            Ok(Outcome::Integer(value)) => ctx.reply_integer(value),
            Ok(Outcome::Nil) => ctx.reply_nil(),
            Ok(Outcome::WaitsForMessage) => ctx.reply_simple(c"WAITING"),
            Ok(Outcome::Waiting) => {}
            Err(error) => error_reply::error(ctx, C::NAME, error),
        }
    }
}

/// The outcome of a request.
enum Outcome {
    Integer(i64),
    Nil,
    /// The request is in the queue, and its client is blocked. There is no reply yet.
    Waiting,
    /// The request is in the queue, and its client is not blocked.
    WaitsForMessage,
}

/// The index of the first argument after the caller's identity.
const FIRST_OPTION: usize = 3;

#[inline(always)]
fn execute<C: LockCommand>(ctx: &mut Context<'_>, arguments: Arguments<'_>) -> Result<Outcome, Error> {
    let argument = |number| arguments.get(number).ok_or(Error::Arity);
    let (name, identity) = (argument(1)?, argument(2)?);
    let caller = check_identity(identity.bytes())?;
    let Parsed { request, notify } = C::parse(arguments.arguments_from(FIRST_OPTION))?;
    request.check_lease(settings::longest_lease())?;
    if request.session {
        checks::check_session_here(ctx)?;
    }
    let channel = channel_of(notify, arguments);
    if let Some(channel) = channel {
        checks::check_notify_here(ctx, caller, arguments, channel)?;
    }

    let mut key = ctx.open(name, Mode::Write);
    let (now, mut budget) = (server::now_ms(), key.with_state(|state| state.budget()));
    let handles = process_overdue(&mut key, Some(identity), now, &mut budget);
    let lock = lock_key::read_for(&key, Some(identity), now);
    let is_shared = matches!(lock, Ok(Lock::Shared(_)));
    let facts = RequestFacts { key: &key, caller, channel, handles };
    let verdict = lock.and_then(|lock| admit(&lock, &request, caller, now, &facts));
    let withdrawn = if handles.is_some() { withdraw(&key, caller, request.withdrawal(&verdict)) } else { None };
    let outcome = match verdict {
        Ok(Verdict::Done { write, reply }) => {
            if is_shared {
                // This comes before a session begins: it ends the session of an expired share of the same token.
                share_sessions::purge_expired(&mut key, now, &mut budget);
            }
            let has_session = handles.is_some_and(|handles| handles.session.is_some() || handles.has_share_sessions);
            if has_session || request.session {
                update_session(&key, caller, request.session(), write, reply, now);
            }
            carry_out(&mut key, write, identity, handles, now, &mut budget);
            Ok(Outcome::Integer(reply))
        }
        Ok(verdict) => {
            if is_shared && share_key::has_too_many_expired(&key) {
                // Without a queue, no review would do it.
                share_sessions::purge_expired(&mut key, now, &mut budget);
            }
            match verdict {
                Verdict::Wait(timeout) => wait(&mut key, caller, &request, timeout, channel, now),
                _ => Ok(Outcome::Nil),
            }
        }
        Err(_) if withdrawn.is_some() => Ok(Outcome::Nil), // The request has cancelled a wait, which is a success.
        Err(error) => Err(error),
    };
    // Only a request that waits, or begins a session, adds handles.
    let adds = matches!(outcome, Ok(Outcome::Waiting | Outcome::WaitsForMessage)) || request.session;
    if let Some(handles) = if adds { LockHandles::of(&key) } else { handles } {
        watch_lease(&key, identity, handles, now);
    }
    if let Some(withdrawn) = withdrawn {
        let subject = Subject { db: key.ctx().db(), key: name.bytes(), owner: caller };
        delivery::reply_withdrawn(key.server_mut(), withdrawn, subject);
    }
    outcome
}

/// Returns the channel on which the request waits for a message, if it does.
#[inline(always)]
fn channel_of(notify: Option<usize>, arguments: Arguments<'_>) -> Option<StringRef<'_>> {
    let channel = arguments.get(FIRST_OPTION.saturating_add(notify?));
    debug_assert!(channel.is_some(), "the parser found a channel that is no argument");
    channel
}

/// Adds the request to the queue.
fn wait(
    key: &mut Key<'_, '_>,
    caller: &[u8],
    request: &Request,
    timeout: BlockTimeout,
    channel: Option<StringRef<'_>>,
    now: UnixMs,
) -> Result<Outcome, Error> {
    enqueue::wait(key, caller, request, timeout, channel, now).map(|waits| match waits {
        Waits::Blocked => Outcome::Waiting,
        Waits::ForMessage => Outcome::WaitsForMessage,
        Waits::Not => Outcome::Nil,
    })
}

/// Removes queue entries of the caller.
///
/// Returns the requests of these entries, which get their replies last, or `None` if the caller had no such entry.
#[inline(always)]
fn withdraw(key: &Key<'_, '_>, caller: &[u8], withdrawal: Withdrawal) -> Option<Vec<WaiterId>> {
    let kept = match withdrawal {
        Withdrawal::Nothing => return None,
        Withdrawal::Others(kind) => Some(kind),
        Withdrawal::All => None,
    };
    let (db, name) = (key.ctx().db(), key.name().bytes());
    key.with_state(|state| state.waiting.withdraw_owner(db, name, caller, kept))
}

/// Updates the session of the lock, and begins one if it is `wanted`, before the write.
///
/// `reply` is the number of holds, or for EXTEND the remaining lease in milliseconds.
fn update_session(
    key: &Key<'_, '_>,
    caller: &[u8],
    wanted: Option<(Kind, Lease)>,
    write: Write,
    reply: i64,
    now: UnixMs,
) {
    server::subscribe::<Locks>();
    if wanted.is_some_and(|(kind, _)| kind == Kind::Shared) {
        server::subscribe_to_sorted_sets::<Locks>();
    }
    let (db, name, client) = (key.ctx().db(), key.name().bytes(), key.ctx().client_id());
    let hold_key = match write {
        Write::Take { kind, .. } => HoldKey::of(db, name, kind, caller),
        _ => hold_key_of(key, caller),
    };
    key.with_state(|State { sessions, .. }| {
        match (write, Lease::from_ms(reply)) {
            (Write::Take { .. }, _) => sessions.end(hold_key),
            (Write::SetHolds { holds, .. }, _) => sessions.set_holds(hold_key, holds),
            (Write::SetLease(_), Some(remaining)) => sessions.set_lease(hold_key, remaining, now),
            _ => {}
        }
        if let Some((kind, lease)) = wanted {
            let (key, owner) = (name.into(), caller.into());
            debug_assert!(reply >= 1, "a session begins with a hold");
            sessions.attach(SessionLock { db, key, kind, owner, holds: reply, lease }, client, now);
        }
    });
}

/// Carries out a decision: writes, replicates, causes the events, and grants a lock that was released to the next waiter.
#[inline(always)]
fn carry_out(
    key: &mut Key<'_, '_>,
    write: Write,
    caller: StringRef<'_>,
    handles: Option<LockHandles>,
    now: UnixMs,
    budget: &mut Budget,
) {
    debug_assert!(write.lease_end().is_none_or(|end| end > now), "the end of a lease is in the past");
    match write {
        Write::Take { kind, lease_end } => {
            debug_assert!(!key.is_in_use(), "a key in use cannot be written");
            effects::grant(key, kind, caller, lease_end);
            key.with_state(|state| increment(&mut state.stats.granted_at_once));
            if handles.is_some_and(|handles| handles.queue.is_some()) {
                let (db, name) = (key.ctx().db(), key.name().bytes());
                key.with_state(|state| state.waiting.drop_detached_entry(db, name, kind, caller.bytes()));
            }
        }
        Write::Confirm { lease_end } => {
            if let Some(end) = lease_end {
                set_lease(key, caller, end);
            }
            key.with_state(|state| increment(&mut state.stats.resent));
        }
        Write::SetHolds { holds, lease_end } => effects::set_holds(key, caller, holds, lease_end),
        Write::SetLease(end) => set_lease(key, caller, end),
        Write::Free => handover::release(key, handles, Cause::Release, now, budget),
        Write::RemoveShare => handover::release_share(key, caller, handles, Cause::Release, now, budget),
    }
    if !matches!(write, Write::Free | Write::RemoveShare) {
        mark_holder_notified(key, caller);
    }
}

/// Sets the end of the lease of a lock that is held alone, or of the share of `holder`.
fn set_lease(key: &mut Key<'_, '_>, holder: StringRef<'_>, end: UnixMs) {
    match key.value_type() {
        ValueType::SortedSet => effects::set_share(key, holder, Some(end)),
        _ => effects::set_lease(key, end),
    }
}

/// Schedules the review of the lock and the renewal of its session by the end of the lease.
fn watch_lease(key: &Key<'_, '_>, caller: StringRef<'_>, handles: LockHandles, now: UnixMs) {
    // A free lock with a queue could not be granted now. It is reviewed in the next event-loop iteration.
    if let Some(queue) = handles.queue.filter(|_| !key.is_empty()) {
        reviews::schedule(key, queue, now);
    }
    // A session whose lock is free is to get it back, and could not get it now.
    if let Some(session) = handles.session.filter(|_| !key.is_empty()) {
        let lease_end = key.expiry();
        key.with_state(|state| state.sessions.set_lease_end(session, lease_end));
    }
    if handles.has_share_sessions {
        if let Some(end) = share_key::end_of(key, caller) {
            let hold_key = share_hold_key(key, caller.bytes());
            key.with_state(|state| {
                if let Some(session) = state.sessions.find(hold_key) {
                    debug_assert!(state.sessions.get(session).is_some(), "the index has a session that does not exist");
                    state.sessions.set_lease_end(session, end.time());
                }
            });
        }
    }
}
