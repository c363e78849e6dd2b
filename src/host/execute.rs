//! Runs a request to change a lock: parse, serve who is first, decide, write, answer.
//!
//! What every request goes through is inlined by force, here and where it leads to: calls and returns were a seventh of
//! the module's own instructions.

use std::ffi::c_int;

use redis_module::raw;

use super::alarm;
use super::blocked;
use super::clock;
use super::config;
use super::context::{Context, ContextFlags};
use super::effect;
use super::events;
use super::guard::guard;
use super::handover;
use super::key::{Key, Mode};
use super::remembered::Remembered;
use super::reply;
use super::state::{self, State};
use super::text::{Arguments, Text};
use crate::command::{Request, Wait, check_identity};
use crate::core::{Begin, Cause, ConnectionId, Decision, Kind, Lease, Refusal, Session, UnixMs, Write, count};

/// What the client is told.
enum Answer {
    Integer(i64),
    Nil,
    /// Nothing now: the client waits in line.
    Later,
}

/// The server's entry to a command that changes a lock.
pub unsafe extern "C" fn run<R: Request>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's own context and arguments, valid while this command runs.
    let (ctx, arguments) = unsafe { (Context::new(ctx), Arguments::new(argv, argc)) };
    answer(ctx, R::NAME, || {
        match execute::<R>(ctx, arguments)? {
            Answer::Integer(value) => reply::integer(ctx, value),
            Answer::Nil => reply::nil(ctx),
            Answer::Later => {}
        }
        Ok(())
    })
}

/// Runs the body of a command, which replies unless it is refused. Refusals and panics are answered here.
pub fn answer(ctx: Context<'_>, command: &str, body: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    let panicked = guard(command, true, || {
        if let Err(refusal) = body() {
            if refusal == Refusal::NotOwner {
                state::with(|state| count(&mut state.stats.not_owner));
            }
            reply::refusal(ctx, refusal, command);
        }
        false
    });
    if panicked {
        reply::error(ctx, "ERR internal error of redis-lock, see the server's log");
    }
    raw::REDISMODULE_OK as c_int
}

#[inline(always)]
fn execute<R: Request>(ctx: Context<'_>, arguments: Arguments<'_>) -> Result<Answer, Refusal> {
    let (name, identity) = (arguments.text(1)?, arguments.text(2)?);
    let caller = check_identity(identity.bytes())?;
    let request = R::parse(arguments.words_from(3))?;
    if request.session().is_some() {
        check_session_here(ctx)?;
    }

    let mut key = Key::open(ctx, name, Mode::Write);
    let now = clock::now();
    let remembered = handover::settle(&mut key, now);
    let mut outcome = match key.read_for(Some(identity)) {
        Ok(lock) => request.decide(&lock, caller, now),
        Err(refusal) => Err(refusal),
    };
    if let Some((kind, _)) = request.session() {
        outcome = outcome.and_then(|decision| check_session_limit(&key, kind, caller, decision, request.wait()));
    }
    let waited_for = remembered.is_some_and(|remembered| remembered.queue.is_some());
    let withdrawn = if waited_for && request.withdraws(&outcome) { withdraw(&key, caller) } else { None };
    let answer = match outcome {
        Ok(Decision::Done { write, reply }) => {
            let has_session = remembered.is_some_and(|remembered| remembered.session.is_some());
            if has_session || request.session().is_some() {
                update_session(&key, caller, request.session(), write, reply, now);
            }
            carry_out(&mut key, write, identity, remembered, now);
            Ok(Answer::Integer(reply))
        }
        Ok(Decision::Contended) => wait_or_nil(&key, caller, request.wait(), now),
        Err(_) if withdrawn.is_some() => Ok(Answer::Nil), // Its wait was all there was to give up.
        Err(refusal) => Err(refusal),
    };
    // Only who waits, or begins a session, adds to what is remembered.
    let adds = matches!(answer, Ok(Answer::Later)) || request.session().is_some();
    if let Some(remembered) = if adds { Remembered::of(&key) } else { remembered } {
        watch_lease(&key, remembered);
    }
    if let Some(withdrawn) = withdrawn {
        blocked::answer_withdrawn(withdrawn);
    }
    answer
}

/// A session begins neither in a script, where the client is a stand-in, nor on a replica that takes its clients' writes.
#[cold]
fn check_session_here(ctx: Context<'_>) -> Result<(), Refusal> {
    match ctx.flags() {
        flags if flags.contains(ContextFlags::SCRIPT) => Err(Refusal::SessionInScript),
        flags if flags.contains(ContextFlags::REPLICA) => Err(Refusal::SessionOnReplica),
        _ => Ok(()),
    }
}

/// Refuses one session too many, before anything is changed. A request that is answered nil begins none, and neither
/// does one whose lock belongs to the connection already.
fn check_session_limit(
    key: &Key<'_>,
    kind: Kind,
    caller: &[u8],
    decision: Decision,
    wait: Option<Wait>,
) -> Result<Decision, Refusal> {
    if decision == Decision::Contended && (wait.is_none() || !may_wait(key)) {
        return Ok(decision);
    }
    let limit = usize::try_from(config::MAX_SESSIONS.get()).unwrap_or(usize::MAX);
    let (db, name, client) = (key.ctx.db(), key.name.bytes(), key.ctx.client_id());
    state::with(|State { sessions, blocked, .. }| {
        let is_same = |session: &Session| session.kind == kind && *session.owner == *caller;
        let known = sessions.of(db, name).filter(|&id| sessions.get(id).is_some_and(is_same));
        let repeated = known.is_some_and(|id| sessions.clients(id).any(|other| other == client));
        let full = sessions.pairs().saturating_add(blocked.for_sessions()) >= limit;
        if full && !repeated { Err(Refusal::SessionFull) } else { Ok(decision) }
    })
}

/// Whether a client can be blocked here. On a replica nobody is ever served, though it may take its clients' writes.
fn may_wait(key: &Key<'_>) -> bool {
    !key.ctx.flags().intersects(ContextFlags::DENY_BLOCKING | ContextFlags::REPLICA)
}

/// Notes that the present holder is told that it is the holder: who may have been told keeps the lock.
pub fn holder_is_told(key: &Key<'_>) {
    if state::with(|state| state.blocked.has_grants()) {
        let (db, name) = (key.ctx.db(), key.name.bytes());
        state::with(|state| state.blocked.holder_is_told(db, name));
    }
}

fn wait_or_nil(key: &Key<'_>, caller: &[u8], wait: Option<Wait>, now: UnixMs) -> Result<Answer, Refusal> {
    let Some(wait) = wait.filter(|_| may_wait(key)) else {
        return Ok(Answer::Nil);
    };
    blocked::wait(key, caller, wait, now).map(|waits| if waits { Answer::Later } else { Answer::Nil })
}

/// Takes the caller out of the line for this lock. Returns the connections that waited there, to be told last, or `None`
/// if it had no place.
fn withdraw(key: &Key<'_>, caller: &[u8]) -> Option<Vec<ConnectionId>> {
    let (db, name) = (key.ctx.db(), key.name.bytes());
    state::with(|state| state.room.withdraw(db, name, caller))
}

/// Keeps the session of the lock in step with what is about to be written, and begins one if that is asked for.
fn update_session(key: &Key<'_>, caller: &[u8], wanted: Option<(Kind, Lease)>, write: Write, reply: i64, now: UnixMs) {
    events::listen();
    let (db, name, client) = (key.ctx.db(), key.name.bytes(), key.ctx.client_id());
    state::with(|State { sessions, .. }| {
        match (write, Lease::from_ms(reply)) {
            (Write::Take { .. }, _) => sessions.end(db, name),
            (Write::SetHolds { holds, .. }, _) => sessions.set_holds(db, name, holds),
            (Write::SetLease(_), Some(remaining)) => sessions.set_lease(db, name, remaining, now),
            _ => {}
        }
        if let Some((kind, lease)) = wanted {
            let (key, owner) = (name.into(), caller.into());
            sessions.begin(Begin { db, key, kind, owner, holds: reply, lease, client }, now);
        }
    });
}

#[inline(always)]
fn carry_out(key: &mut Key<'_>, write: Write, caller: Text<'_>, remembered: Option<Remembered>, now: UnixMs) {
    if write != Write::Free {
        holder_is_told(key);
    }
    match write {
        Write::Take { kind, lease_end } => {
            effect::grant(key, kind, caller, lease_end);
            state::with(|state| count(&mut state.stats.granted_at_once));
            if remembered.is_some_and(|remembered| remembered.queue.is_some()) {
                let (db, name) = (key.ctx.db(), key.name.bytes());
                state::with(|state| state.room.forget(db, name, kind, caller.bytes()));
            }
        }
        Write::Confirm { lease_end } => {
            if let Some(end) = lease_end {
                effect::set_lease(key, end);
            }
            state::with(|state| count(&mut state.stats.resent));
        }
        Write::SetHolds { holds, lease_end } => effect::set_holds(key, caller, holds, lease_end),
        Write::SetLease(end) => effect::set_lease(key, end),
        Write::Free => handover::release(key, remembered, Cause::Release, now),
    }
}

/// Where the module remembers anything, the alarm follows the lease.
fn watch_lease(key: &Key<'_>, remembered: Remembered) {
    let lease_end = key.expiry();
    state::with(|state| {
        if let Some(queue) = remembered.queue {
            state.room.review_after(queue, lease_end);
        }
        if let Some(session) = remembered.session {
            state.sessions.lease_ends(session, lease_end);
        }
    });
    alarm::set();
}
