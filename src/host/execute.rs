//! Executes a request to change a lock: parse, process what is overdue, decide, write, reply.
//!
//! What every request goes through is inlined by force, here and in the functions it calls. Calls and returns were a
//! seventh of the module's own instructions.

use std::marker::PhantomData;

use super::effect;
use super::grants::{self, mark_holder_told};
use super::handover;
use super::lock_handles::LockHandles;
use super::lock_key;
use super::overdue::process_overdue;
use super::reply;
use super::settings::{self, MAX_SESSIONS};
use super::state::{self, Context, Key, Locks, State};
use super::timer;
use super::waiting;
use crate::command::{Request, WaitOptions, check_identity};
use crate::core::{Cause, Decision, Error, Kind, Lease, Session, SessionLock, UnixMs, WaiterId, Write, increment};
use crate::server::{self, Arguments, ContextFlags, Mode, RunCommand, StringRef};

/// The command for requests of type `R`.
pub struct Execute<R>(PhantomData<R>);

impl<R: Request + 'static> RunCommand<Locks> for Execute<R> {
    const NAME: &'static str = R::NAME;

    #[inline(always)]
    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        match execute::<R>(ctx, arguments) {
            Ok(Outcome::Integer(value)) => ctx.reply_integer(value),
            Ok(Outcome::Nil) => ctx.reply_nil(),
            Ok(Outcome::Waiting) => {}
            Err(error) => reply::error(ctx, R::NAME, error),
        }
    }
}

/// The outcome of a request.
enum Outcome {
    Integer(i64),
    Nil,
    /// No reply now: the client waits in line.
    Waiting,
}

#[inline(always)]
fn execute<R: Request>(ctx: &mut Context<'_>, arguments: Arguments<'_>) -> Result<Outcome, Error> {
    let argument = |number| arguments.get(number).ok_or(Error::Arity);
    let (name, identity) = (argument(1)?, argument(2)?);
    let caller = check_identity(identity.bytes())?;
    let request = R::parse(arguments.arguments_from(3))?;
    if request.session().is_some() {
        check_session_here(ctx)?;
    }

    let mut key = ctx.open(name, Mode::Write);
    let now = server::now_ms();
    let handles = process_overdue(&mut key, now);
    let mut outcome = match lock_key::read_for(&key, Some(identity)) {
        Ok(lock) => request.decide(&lock, caller, now),
        Err(error) => Err(error),
    };
    if let Some((kind, _)) = request.session() {
        outcome = outcome.and_then(|decision| check_session_limit(&key, kind, caller, decision, request.wait()));
    }
    let waited_for = handles.is_some_and(|handles| handles.queue.is_some());
    let withdrawn = if waited_for && request.withdraws(&outcome) { withdraw(&key, caller) } else { None };
    planted!(ErrorWrites => if outcome == Err(Error::NotOwner) { effect::set_lease(&mut key, now.saturating_add(1)) });
    let answer = match outcome {
        Ok(Decision::Done { write, reply }) => {
            let has_session = handles.is_some_and(|handles| handles.session.is_some());
            if has_session || request.session().is_some() {
                update_session(&key, caller, request.session(), write, reply, now);
            }
            carry_out(&mut key, write, identity, handles, now);
            Ok(Outcome::Integer(reply))
        }
        Ok(Decision::Contended) => wait_or_nil(&mut key, caller, request.wait(), now),
        Err(_) if withdrawn.is_some() => Ok(Outcome::Nil), // Its wait was all there was to give up.
        Err(error) => Err(error),
    };
    // Only a request that waits, or begins a session, adds handles.
    let adds = matches!(answer, Ok(Outcome::Waiting)) || request.session().is_some();
    if let Some(handles) = if adds { LockHandles::of(&key) } else { handles } {
        watch_lease(&key, handles);
    }
    if let Some(withdrawn) = withdrawn.filter(|_| !planted!(WithdrawnInSilence)) {
        grants::reply_withdrawn(withdrawn);
    }
    answer
}

/// Checks that a session can begin here.
///
/// It cannot where the client has no connection, in a script or a call by another module. Nor can it on a replica, even
/// one that accepts its clients' writes.
#[cold]
fn check_session_here(ctx: &Context<'_>) -> Result<(), Error> {
    if !ctx.has_connection() && !planted!(SessionInScript) {
        return Err(Error::SessionInScript);
    }
    if ctx.flags().contains(ContextFlags::REPLICA) { Err(Error::SessionOnReplica) } else { Ok(()) }
}

/// Refuses a request that would exceed `lock.max-sessions`, before anything is changed.
///
/// A request that is answered nil begins no session. A request whose connection is in the lock's session already adds
/// none.
fn check_session_limit(
    key: &Key<'_, '_>,
    kind: Kind,
    caller: &[u8],
    decision: Decision,
    wait: Option<WaitOptions>,
) -> Result<Decision, Error> {
    if decision == Decision::Contended && (wait.is_none() || !may_wait(key)) {
        return Ok(decision);
    }
    let limit = settings::limit(&MAX_SESSIONS);
    let (db, name, client) = (key.ctx().db(), key.name().bytes(), key.ctx().client_id());
    state::with(|State { sessions, blocked, .. }| {
        let is_same = |session: &Session| session.lock.kind == kind && *session.lock.owner == *caller;
        let known = sessions.find(db, name).filter(|&id| sessions.get(id).is_some_and(is_same));
        let repeated = known.is_some_and(|id| sessions.clients(id).any(|other| other == client));
        let full = sessions.pairs().saturating_add(blocked.session_waiters()) >= limit;
        if full && !repeated && !planted!(SessionsWithoutEnd) { Err(Error::SessionFull) } else { Ok(decision) }
    })
}

/// Returns whether the client can be blocked here. A replica, even one that accepts its clients' writes, never grants a
/// lock to a waiter.
fn may_wait(key: &Key<'_, '_>) -> bool {
    !key.ctx().flags().intersects(ContextFlags::DENY_BLOCKING | ContextFlags::REPLICA)
}

fn wait_or_nil(key: &mut Key<'_, '_>, caller: &[u8], wait: Option<WaitOptions>, now: UnixMs) -> Result<Outcome, Error> {
    let Some(wait) = wait.filter(|_| may_wait(key)) else {
        return Ok(Outcome::Nil);
    };
    waiting::wait(key, caller, wait, now).map(|waits| if waits { Outcome::Waiting } else { Outcome::Nil })
}

/// Removes the caller from the queue of the lock. Returns the requests that waited there, to be answered last, or
/// `None` if the caller had no place.
fn withdraw(key: &Key<'_, '_>, caller: &[u8]) -> Option<Vec<WaiterId>> {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|state| state.waiting.withdraw(db, name, caller))
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
    let (db, name, client) = (key.ctx().db(), key.name().bytes(), key.ctx().client_id());
    state::with(|State { sessions, .. }| {
        match (write, Lease::from_ms(reply)) {
            (Write::Take { .. }, _) => sessions.end(db, name),
            (Write::SetHolds { holds, .. }, _) => sessions.set_holds(db, name, holds),
            (Write::SetLease(_), Some(remaining)) => sessions.set_lease(db, name, remaining, now),
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
    if write != Write::Free {
        mark_holder_told(key);
    }
    match write {
        Write::Take { kind, lease_end } => {
            effect::grant(key, kind, caller, lease_end);
            state::with(|state| increment(&mut state.stats.granted_at_once));
            if handles.is_some_and(|handles| handles.queue.is_some()) {
                let (db, name) = (key.ctx().db(), key.name().bytes());
                state::with(|state| state.waiting.drop_away_place(db, name, kind, caller.bytes()));
            }
        }
        Write::Confirm { lease_end } => {
            if let Some(end) = lease_end {
                effect::set_lease(key, end);
            }
            state::with(|state| increment(&mut state.stats.resent));
        }
        Write::SetHolds { holds, lease_end } => effect::set_holds(key, caller, holds, lease_end),
        Write::SetLease(end) => effect::set_lease(key, end),
        Write::Free => handover::release(key, handles, Cause::Release, now),
    }
}

/// Follows the lease with the timer, if the lock has a queue or a session.
fn watch_lease(key: &Key<'_, '_>, handles: LockHandles) {
    let lease_end = key.expiry();
    planted!(LeaseIsUnwatched => return timer::set());
    state::with(|state| {
        if let Some(queue) = handles.queue {
            state.waiting.review_at_lease_end(queue, lease_end);
        }
        if let Some(session) = handles.session {
            state.sessions.set_lease_end(session, lease_end);
        }
    });
    timer::set();
}
