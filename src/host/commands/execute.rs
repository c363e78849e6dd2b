//! Executes a request to change a lock: parse, process what is overdue, decide, write, reply.
//!
//! What every request goes through is inlined by force, here and in the functions it calls. Calls and returns were a
//! seventh of the module's own instructions.

use std::marker::PhantomData;

use super::error_reply;
use crate::command::{Request, WaitOptions, check_identity};
use crate::core::{
    Cause, Decision, Error, HoldKey, Kind, Lease, Lock, Session, SessionLock, UnixMs, WaiterId, Write, increment,
};
use crate::host::background::alarm;
use crate::host::background::suspension;
use crate::host::granting::delivery::{self, mark_holder_notified};
use crate::host::granting::handover;
use crate::host::granting::overdue::process_overdue;
use crate::host::granting::reviews;
use crate::host::keys::effects;
use crate::host::keys::lock_handles::{LockHandles, hold_key_of, share_hold_key};
use crate::host::keys::lock_key;
use crate::host::keys::share_key;
use crate::host::sessions::share_sessions;
use crate::host::settings::{self, MAX_SESSIONS};
use crate::host::state::{self, Context, Key, Locks, State};
use crate::host::waiting::enqueue::{self, Waits};
use crate::host::waiting::messages::Subject;
use crate::host::waiting::pending_replies::pending_id;
use crate::server::{self, Arguments, ContextFlags, Mode, RunCommand, StringRef, ValueType};

/// The command for requests of type `R`.
pub struct Execute<R>(PhantomData<R>);

impl<R: Request + 'static> RunCommand<Locks> for Execute<R> {
    const NAME: &'static str = R::NAME;

    #[inline(always)]
    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        match execute::<R>(ctx, arguments) {
            Ok(Outcome::Integer(value)) => ctx.reply_integer(value),
            Ok(Outcome::Nil) => ctx.reply_nil(),
            Ok(Outcome::WaitsForMessage) => ctx.reply_simple(c"WAITING"),
            Ok(Outcome::Waiting) => {}
            Err(error) => error_reply::error(ctx, R::NAME, error),
        }
    }
}

/// The outcome of a request.
enum Outcome {
    Integer(i64),
    Nil,
    /// No reply now: the client waits in line.
    Waiting,
    /// The request waits in line, and its client does not.
    WaitsForMessage,
}

/// The number of the first argument behind the caller's identity.
const FIRST_OPTION: usize = 3;

#[expect(clippy::too_many_lines, reason = "each step uses what the steps before it have read")]
#[inline(always)]
fn execute<R: Request>(ctx: &mut Context<'_>, arguments: Arguments<'_>) -> Result<Outcome, Error> {
    let argument = |number| arguments.get(number).ok_or(Error::Arity);
    let (name, identity) = (argument(1)?, argument(2)?);
    let caller = check_identity(identity.bytes())?;
    let request = R::parse(arguments.arguments_from(FIRST_OPTION))?;
    let is_restricted = settings::restrict_requests();
    if is_restricted {
        check_lease(&request)?;
    }
    if request.session().is_some() {
        check_session_here(ctx)?;
    }
    let notify = request.wait().and_then(|wait| wait.notify);
    let channel = notify.and_then(|number| arguments.get(FIRST_OPTION.saturating_add(number)));
    if let Some(channel) = channel {
        check_notify_here(ctx, caller, arguments, channel)?;
    }

    let mut key = ctx.open(name, Mode::Write);
    let now = server::now_ms();
    let handles = process_overdue(&mut key, Some(identity), now);
    let (mut outcome, is_shared) = match lock_key::read_for(&key, Some(identity), now) {
        Ok(lock) => (request.decide(&lock, caller, now), matches!(lock, Lock::Shared(_))),
        Err(error) => (Err(error), false),
    };
    let waited_for = handles.is_some_and(|handles| handles.queue.is_some());
    if waited_for
        && matches!(outcome, Ok(Decision::Done { write: Write::Take { .. }, .. }))
        && has_waiter_to_grant(&key)
    {
        outcome = Ok(Decision::Contended);
    }
    if is_restricted {
        outcome = restrict(outcome, now);
    }
    if let Some((kind, _)) = request.session() {
        outcome =
            outcome.and_then(|decision| check_session_limit(&key, kind, caller, decision, request.wait(), channel));
    }
    let withdrawn = if waited_for { withdraw(&key, caller, &request, &outcome) } else { None };
    let answer = match outcome {
        Ok(Decision::Done { write, reply }) => {
            if is_shared {
                // Before a session begins, which is not one of a share by the same token whose time has passed.
                share_sessions::purge_expired(&mut key, now);
            }
            let has_session = handles.is_some_and(|handles| handles.session.is_some() || handles.has_share_sessions);
            if has_session || request.session().is_some() {
                update_session(&key, caller, request.session(), write, reply, now);
            }
            carry_out(&mut key, write, identity, handles, now);
            Ok(Outcome::Integer(reply))
        }
        Ok(Decision::Contended) => {
            if is_shared && share_key::has_too_many_expired(&key) {
                share_sessions::purge_expired(&mut key, now); // Or nobody might, who does not wait.
            }
            wait_or_nil(&mut key, caller, request.wait(), channel, now)
        }
        Err(_) if withdrawn.is_some() => Ok(Outcome::Nil), // Its wait was all there was to give up.
        Err(error) => Err(error),
    };
    // Only a request that waits, or begins a session, adds handles.
    let adds = matches!(answer, Ok(Outcome::Waiting | Outcome::WaitsForMessage)) || request.session().is_some();
    if let Some(handles) = if adds { LockHandles::of(&key) } else { handles } {
        watch_lease(&key, identity, handles, now);
    }
    if let Some(withdrawn) = withdrawn {
        let subject = Subject { db: key.ctx().db(), key: name.bytes(), owner: caller };
        delivery::reply_withdrawn(withdrawn, subject);
    }
    answer
}

/// Checks that a session can begin here.
///
/// It cannot where the client has no connection, in a script or a call by another module. Nor can it on a replica, even
/// one that accepts its clients' writes.
#[cold]
fn check_session_here(ctx: &Context<'_>) -> Result<(), Error> {
    if !ctx.has_connection() {
        return Err(Error::SessionInScript);
    }
    if ctx.flags().contains(ContextFlags::REPLICA) { Err(Error::SessionOnReplica) } else { Ok(()) }
}

/// Checks that a request can wait for a message: there is a connection that it belongs to, its token is one word, and its
/// user has the right to the channel together with the command and the key.
#[cold]
fn check_notify_here(
    ctx: &Context<'_>,
    caller: &[u8],
    arguments: Arguments<'_>,
    channel: StringRef<'_>,
) -> Result<(), Error> {
    if !ctx.has_connection() {
        return Err(Error::NotifyInScript);
    }
    if caller.contains(&b' ') {
        return Err(Error::TokenWithSpace);
    }
    if ctx.may_publish_with(arguments, channel) { Ok(()) } else { Err(Error::NoRightToChannel) }
}

/// Refuses a lease that is longer than `lock.max-lease-ms`, or missing.
#[cold]
fn check_lease(request: &impl Request) -> Result<(), Error> {
    settings::longest_lease().map_or(Ok(()), |longest| request.check_lease(longest))
}

/// Returns what is left of a decision under `lock.recovery-ms` and `lock.max-lease-ms`: EXTEND can add to a lease.
#[cold]
fn restrict(decided: Result<Decision, Error>, now: UnixMs) -> Result<Decision, Error> {
    let longest = settings::longest_lease();
    let is_too_long = |end| longest.is_some_and(|longest| end > longest.end_from(now));
    match suspension::restrict(decided)? {
        Decision::Done { write: Write::SetLease(end), .. } if is_too_long(end) => Err(Error::LeaseLimit),
        decision => Ok(decision),
    }
}

/// Returns whether somebody waits for the lock, which is free, and could not be granted it just now.
#[cold]
fn has_waiter_to_grant(key: &Key<'_, '_>) -> bool {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|State { waiting, .. }| waiting.queue_of(db, name).is_some_and(|id| waiting.waiter_count_of(id) > 0))
}

/// The number of connections at most to which one lock, or one share, belongs. Its session ends in one step.
const MAX_CONNECTIONS: usize = 1000;

/// Refuses a request that would exceed `lock.max-sessions`, or the connections of one session, before anything is changed.
///
/// A request that is answered nil begins no session. A request whose connection is in the lock's session already, or
/// waits to be, adds none; nor does one that takes the place of another.
fn check_session_limit(
    key: &Key<'_, '_>,
    kind: Kind,
    caller: &[u8],
    decision: Decision,
    wait: Option<WaitOptions>,
    channel: Option<StringRef<'_>>,
) -> Result<Decision, Error> {
    if decision == Decision::Contended && !wait.is_some_and(|wait| may_wait(key, wait)) {
        return Ok(decision);
    }
    let limit = settings::limit(&MAX_SESSIONS);
    let (db, name, client) = (key.ctx().db(), key.name().bytes(), key.ctx().client_id());
    state::with(|State { sessions, waiting, pending, .. }| {
        let is_same = |session: &Session| session.lock.kind == kind && *session.lock.owner == *caller;
        let known =
            sessions.find(HoldKey::of(db, name, kind, caller)).filter(|&id| sessions.get(id).is_some_and(is_same));
        let is_crowded = known.is_some_and(|id| sessions.clients(id).count() >= MAX_CONNECTIONS);
        let has_capacity = sessions.pairs().saturating_add(pending.session_waiters()) < limit && !is_crowded;
        if has_capacity {
            return Ok(decision);
        }
        let channel = channel.filter(|_| decision == Decision::Contended).map(StringRef::bytes);
        let asked =
            |waiter| pending.get(pending_id(waiter)).is_some_and(|entry| entry.asks_for_session(client, channel));
        let is_repeated = known.is_some_and(|id| sessions.clients(id).any(|other| other == client))
            || waiting.waiters_of(db, name, kind, caller).any(asked);
        if is_repeated { Ok(decision) } else { Err(Error::SessionFull) }
    })
}

/// Returns whether a request can wait here. A replica, even one that accepts its clients' writes, never grants a lock to
/// a waiter.
fn may_wait(key: &Key<'_, '_>, wait: WaitOptions) -> bool {
    let obstacles = if wait.notify.is_some() { ContextFlags::empty() } else { ContextFlags::DENY_BLOCKING };
    !key.ctx().flags().intersects(obstacles | ContextFlags::REPLICA)
}

fn wait_or_nil(
    key: &mut Key<'_, '_>,
    caller: &[u8],
    wait: Option<WaitOptions>,
    channel: Option<StringRef<'_>>,
    now: UnixMs,
) -> Result<Outcome, Error> {
    let Some(wait) = wait.filter(|&wait| may_wait(key, wait)) else {
        return Ok(Outcome::Nil);
    };
    enqueue::wait(key, caller, wait, channel, now).map(|waits| match waits {
        Waits::Blocked => Outcome::Waiting,
        Waits::ForMessage => Outcome::WaitsForMessage,
        Waits::Not => Outcome::Nil,
    })
}

/// Removes the caller from the queue of the lock, if it gives up its place; or only its places for other forms of the lock,
/// if it is granted one. Returns the requests that waited there, to be answered last, or `None` if the caller had none.
fn withdraw<R: Request>(
    key: &Key<'_, '_>,
    caller: &[u8],
    request: &R,
    outcome: &Result<Decision, Error>,
) -> Option<Vec<WaiterId>> {
    let granted = match outcome {
        Ok(Decision::Done { write: Write::Take { kind, .. }, .. }) => Some(*kind),
        _ if request.withdraws(outcome) => None,
        _ => return None,
    };
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|state| state.waiting.withdraw_owner(db, name, caller, granted))
}

/// Updates the lock's session with what is about to be written, and begins a session if `wanted`.
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
    state::with(|State { sessions, .. }| {
        match (write, Lease::from_ms(reply)) {
            (Write::Take { .. }, _) => sessions.end(hold_key),
            (Write::SetHolds { holds, .. }, _) => sessions.set_holds(hold_key, holds),
            (Write::SetLease(_), Some(remaining)) => sessions.set_lease(hold_key, remaining, now),
            _ => {}
        }
        if let Some((kind, lease)) = wanted {
            let (key, owner) = (name.into(), caller.into());
            sessions.attach(SessionLock { db, key, kind, owner, holds: reply, lease }, client, now);
        }
    });
}

#[inline(always)]
fn carry_out(key: &mut Key<'_, '_>, write: Write, caller: StringRef<'_>, handles: Option<LockHandles>, now: UnixMs) {
    match write {
        Write::Take { kind, lease_end } => {
            effects::grant(key, kind, caller, lease_end);
            state::with(|state| increment(&mut state.stats.granted_at_once));
            if handles.is_some_and(|handles| handles.queue.is_some()) {
                let (db, name) = (key.ctx().db(), key.name().bytes());
                state::with(|state| state.waiting.drop_detached_entry(db, name, kind, caller.bytes()));
            }
        }
        Write::Confirm { lease_end } => {
            if let Some(end) = lease_end {
                set_lease(key, caller, end);
            }
            state::with(|state| increment(&mut state.stats.resent));
        }
        Write::SetHolds { holds, lease_end } => effects::set_holds(key, caller, holds, lease_end),
        Write::SetLease(end) => set_lease(key, caller, end),
        Write::Free => handover::release(key, handles, Cause::Release, now),
        Write::RemoveShare => handover::release_share(key, caller, handles, Cause::Release, now),
    }
    if !matches!(write, Write::Free | Write::RemoveShare) {
        mark_holder_notified(key, caller);
    }
}

fn set_lease(key: &mut Key<'_, '_>, holder: StringRef<'_>, end: UnixMs) {
    match key.value_type() {
        ValueType::SortedSet => effects::set_share(key, holder, Some(end)),
        _ => effects::set_lease(key, end),
    }
}

/// Follows the lease with the timer, if the lock has a queue or a session.
fn watch_lease(key: &Key<'_, '_>, caller: StringRef<'_>, handles: LockHandles, now: UnixMs) {
    // A lock that is free and waited for could not be granted just now, and is reviewed in the next round.
    if let Some(queue) = handles.queue.filter(|_| !key.is_empty()) {
        reviews::schedule(key, queue, now);
    }
    // A session whose lock is free is to get it back, and could not just now.
    if let Some(session) = handles.session.filter(|_| !key.is_empty()) {
        let lease_end = key.expiry();
        state::with(|state| state.sessions.set_lease_end(session, lease_end));
    }
    if handles.has_share_sessions {
        if let Some(end) = share_key::end_of(key, caller) {
            let hold_key = share_hold_key(key, caller.bytes());
            state::with(|state| {
                if let Some(session) = state.sessions.find(hold_key) {
                    state.sessions.set_lease_end(session, end.time());
                }
            });
        }
    }
    alarm::set();
}
