//! Executes the commands that change a lock. The steps are: parse, process overdue work, decide, write, set the timer, reply.
//!
//! The functions that every request needs are `#[inline(always)]`, here and in the other layers: otherwise calls and
//! returns are a seventh of the module's instructions.

use std::marker::PhantomData;

use super::enqueue::{self, Outcome};
use super::{checks, error_reply, facts::RequestFacts};
use crate::command::{LockCommand, Parsed, check_identity};
use crate::core::{
    Cause, EndReason, Error, Handles, HoldKey, Kind, Lease, Lock, NewSession, Request, SessionTerms, UnixMs, Verdict,
    WaiterId, Write, admit, increment,
};
use crate::host::granting::{handover, overdue::process_overdue, reviews, share_sessions};
use crate::host::keys::lock_handles::{handles_of, hold_key_of, share_hold_key};
use crate::host::keys::{effects, lock_key, share_key};
use crate::host::replies::delivery::{self, mark_holder_notified};
use crate::host::state::{Context, Key, Locks, State, Step, with_lock};
use crate::host::{alarm, replies::messages::Subject, settings};
use crate::server::{self, Arguments, Mode, RunCommand, StringRef};

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
            Ok(Outcome::WaitsForMessage(_)) => ctx.reply_simple(c"WAITING"),
            Ok(Outcome::Waiting(_)) => {}
            Err(error) => error_reply::error(ctx, C::NAME, error),
        }
    }
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
    let mut step = Step::begin(key.server());
    let now = step.now;
    let handles = process_overdue(&mut key, Some(identity), &mut step);
    let facts = RequestFacts { key: &key, caller, channel, handles };
    let (verdict, is_shared) = decide(&facts, &request, identity, now);
    let may_withdraw = handles.is_some() && request.withdraws(&verdict);
    let withdrawn = if may_withdraw { withdraw(&key, caller, &verdict, now) } else { None };
    let outcome = match verdict {
        Ok(Verdict::Done { write, reply }) => {
            if is_shared {
                // This comes before a session begins: it ends the session of an expired share of the same token.
                share_sessions::purge_expired(&mut key, &mut step);
            }
            let has_session = handles.is_some_and(|handles| handles.session.is_some() || handles.has_share_sessions);
            if has_session || request.session {
                update_session(&key, caller, &request, write, reply, now);
            }
            carry_out(&mut key, write, identity, handles, &mut step);
            Ok(Outcome::Integer(reply))
        }
        Ok(verdict) => {
            if is_shared && share_key::has_too_many_expired(&key) {
                // Without a queue, no review would do it.
                share_sessions::purge_expired(&mut key, &mut step);
            }
            match verdict {
                Verdict::Wait(timeout) => enqueue::wait(&mut key, caller, &request, timeout, channel, now),
                _ => Ok(Outcome::Nil),
            }
        }
        Err(_) if withdrawn.is_some() => Ok(Outcome::Nil), // The request has cancelled a wait, which is a success.
        Err(error) => Err(error),
    };
    // Only a request that waits, or begins a session, adds handles.
    let adds = matches!(outcome, Ok(Outcome::Waiting(_) | Outcome::WaitsForMessage(_))) || request.session;
    if let Some(handles) = if adds { handles_of(&key) } else { handles } {
        watch_lease(&key, identity, handles, now);
    }
    let subject = Subject { db: key.ctx().db(), key: name.bytes(), owner: caller };
    match (withdrawn, &outcome) {
        (Some(Some(waiter)), _) => delivery::reply_withdrawn(key.server_mut(), waiter, subject),
        (_, Ok(Outcome::Waiting(Some(waiter)) | Outcome::WaitsForMessage(Some(waiter)))) => {
            delivery::reply_replaced(key.server_mut(), *waiter, channel.map(StringRef::bytes), subject);
        }
        _ => {}
    }
    outcome
}

/// Returns the decision on the request, and whether the lock is shared.
#[inline(always)]
fn decide(
    facts: &RequestFacts<'_, '_, '_>,
    request: &Request,
    identity: StringRef<'_>,
    now: UnixMs,
) -> (Result<Verdict, Error>, bool) {
    match lock_key::read(facts.key, Some(identity), now) {
        Ok(lock) => (admit(&lock, request, facts.caller, now, facts), matches!(lock, Lock::Shared(_))),
        Err(error) => (Err(error), false),
    }
}

/// Returns the channel on which the request waits for a message, if it does.
#[inline(always)]
fn channel_of(notify: Option<usize>, arguments: Arguments<'_>) -> Option<StringRef<'_>> {
    let channel = arguments.get(FIRST_OPTION.saturating_add(notify?));
    debug_assert!(channel.is_some(), "the parser found a channel that is no argument");
    channel
}

/// Removes the queue entry of the caller, and the session of a lock that it does not hold now. Returns the waiter, if one waits, which
/// gets its reply last. Returns `None` if the caller had no entry.
#[inline(always)]
fn withdraw(
    key: &Key<'_, '_>,
    caller: &[u8],
    verdict: &Result<Verdict, Error>,
    now: UnixMs,
) -> Option<Option<WaiterId>> {
    let end = settings::wait_end(EndReason::Withdrawn, now);
    with_lock(key, |State { locks, .. }, db, name| {
        let is_not_held = matches!(verdict, Err(Error::NotHeld | Error::NotOwner));
        if let Some(record) = locks.record_of(db, name).filter(|_| is_not_held) {
            locks.end_holds_of(record, caller);
        }
        locks.withdraw_owner(db, name, caller, end)
    })
}

/// Updates the session of the lock, and begins one if the request asks for it, before the write. `reply` is the number of holds,
/// or for EXTEND the remaining lease in milliseconds.
fn update_session(key: &Key<'_, '_>, caller: &[u8], request: &Request, write: Write, reply: i64, now: UnixMs) {
    server::subscribe::<Locks>();
    let wanted = request.session();
    if wanted.is_some_and(|(kind, _)| kind == Kind::Shared) {
        server::subscribe_to_sorted_sets::<Locks>();
    }
    let (db, name, client) = (key.ctx().db(), key.name().bytes(), key.ctx().client_id());
    let hold_key = match write {
        Write::Take { kind, .. } => HoldKey::of(db, name, kind, caller),
        _ => hold_key_of(key, caller),
    };
    key.with_state(|State { locks, .. }| {
        match (write, Lease::from_ms(reply)) {
            (Write::Take { .. }, _) => locks.end_session(hold_key),
            (Write::SetHolds { holds, .. }, _) => locks.set_holds(hold_key, holds),
            (Write::SetLease(_), Some(remaining)) => locks.set_lease(hold_key, remaining, now),
            _ => {}
        }
        if let Some((kind, SessionTerms { lease, grace })) = wanted {
            let (key, owner) = (name.into(), caller.into());
            debug_assert!(reply >= 1, "a session begins with a hold");
            locks.attach(NewSession { db, key, kind, owner, holds: reply, lease, grace }, client, now);
        }
    });
}

/// Carries out a decision: writes, replicates, causes the events, and grants a lock that was released to the next waiter.
#[inline(always)]
fn carry_out(key: &mut Key<'_, '_>, write: Write, owner: StringRef<'_>, handles: Option<Handles>, step: &mut Step) {
    debug_assert!(write.lease_end().is_none_or(|end| end > step.now), "the end of a lease is in the past");
    match write {
        Write::Take { kind, lease_end } => {
            effects::grant(key, kind, owner, lease_end);
            key.with_state(|state| increment(&mut state.stats.granted_at_once));
            if handles.is_some_and(|handles| handles.queue.is_some()) {
                let owner = owner.bytes();
                with_lock(key, |state, db, name| state.locks.drop_detached_entry(db, name, owner));
            }
        }
        Write::Confirm { lease_end } => {
            if let Some(end) = lease_end {
                effects::set_lease_of(key, owner, end);
            }
            key.with_state(|state| increment(&mut state.stats.resent));
        }
        Write::SetHolds { holds, lease_end } => effects::set_holds(key, owner, holds, lease_end),
        Write::SetLease(end) => effects::set_lease_of(key, owner, end),
        Write::Free => handover::release(key, handles, Cause::Release, step),
        Write::RemoveShare => handover::release_share(key, owner, handles, Cause::Release, step),
    }
    if !matches!(write, Write::Free | Write::RemoveShare) {
        mark_holder_notified(key, owner);
    }
}

/// Schedules the review of the lock and the renewal of its session by the end of the lease.
fn watch_lease(key: &Key<'_, '_>, caller: StringRef<'_>, handles: Handles, now: UnixMs) {
    if let Some(queue) = handles.queue {
        reviews::schedule(key, queue, now);
    }
    // A session whose lock is free is to get it back, and could not get it now.
    if let Some(session) = handles.session.filter(|_| !key.is_empty()) {
        let lease_end = key.expiry();
        key.with_state(|state| state.locks.set_lease_end(session, lease_end));
    }
    if handles.has_share_sessions {
        if let Some(end) = share_key::end_of(key, caller) {
            let hold_key = share_hold_key(key, caller.bytes());
            key.with_state(|State { locks, .. }| {
                if let Some(session) = locks.find_session(hold_key) {
                    locks.set_lease_end(session, end.time());
                }
            });
        }
    }
}
