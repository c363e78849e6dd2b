//! Runs a request to change a lock: parse, serve who is first, decide, write, answer.

use std::ffi::c_int;

use redis_module::raw;

use super::alarm;
use super::blocked::{self, Target};
use super::clock;
use super::context::{Context, ContextFlags};
use super::effect;
use super::guard::guard;
use super::handover::hand_over;
use super::key::{Key, Mode};
use super::reply;
use super::state;
use super::text::{Arguments, Text};
use crate::command::{Request, split_request};
use crate::core::{Cause, Decision, Lock, QueueId, Refusal, UnixMs, Write, count};

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
    let panicked = guard(R::NAME, true, || {
        match execute::<R>(ctx, &arguments) {
            Ok(Answer::Integer(value)) => reply::integer(ctx, value),
            Ok(Answer::Nil) => reply::nil(ctx),
            Ok(Answer::Later) => {}
            Err(refusal) => refuse(ctx, refusal, R::NAME),
        }
        false
    });
    if panicked {
        reply::error(ctx, "ERR internal error of redis-lock, see the server's log");
    }
    raw::REDISMODULE_OK as c_int
}

fn refuse(ctx: Context<'_>, refusal: Refusal, command: &str) {
    if refusal == Refusal::NotOwner {
        state::with(|state| count(&mut state.stats.not_owner));
    }
    reply::refusal(ctx, refusal, command);
}

fn execute<R: Request>(ctx: Context<'_>, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let words = arguments.behind_name().ok_or(Refusal::Syntax)?;
    let (caller, options) = split_request(words)?;
    let request = R::parse(options)?;
    let (Some(name), Some(identity)) = (arguments.text(1), arguments.text(2)) else { return Err(Refusal::Arity) };

    let mut key = Key::open(ctx, name, Mode::Write);
    let now = clock::now();
    // Looked up after the key was opened, which may call back.
    let queue = queue_of(ctx, name);
    if let Some(queue) = queue {
        serve_first_in_line(&mut key, queue, now)?;
    }
    let decision = request.decide(&key.read()?, caller, now)?;
    let answer = match (decision, request.wait()) {
        (Decision::Done { write, reply }, _) => {
            carry_out(&mut key, write, identity, queue, now);
            Answer::Integer(reply)
        }
        (Decision::Contended, Some(wait)) if !ctx.flags().contains(ContextFlags::DENY_BLOCKING) => {
            let target = Target { db: ctx.db(), key: name, caller };
            blocked::wait(ctx, &target, wait, now)?;
            Answer::Later
        }
        (Decision::Contended, _) => Answer::Nil,
    };
    watch_lease(&key);
    Ok(answer)
}

fn queue_of(ctx: Context<'_>, name: Text<'_>) -> Option<QueueId> {
    if state::with(|state| state.room.is_empty()) {
        return None; // The common case needs neither the database nor a look-up.
    }
    let db = ctx.db();
    state::with(|state| state.room.queue_of(db, name.bytes()))
}

/// A lock that has come free unnoticed so far goes to the first in line before this request is heard: nobody overtakes.
fn serve_first_in_line(key: &mut Key<'_>, queue: QueueId, now: UnixMs) -> Result<(), Refusal> {
    if key.read()? == Lock::Free {
        let cause = state::with(|state| state.room.cause_of(queue));
        hand_over(key, queue, cause, now);
        alarm::set();
    }
    Ok(())
}

fn carry_out(key: &mut Key<'_>, write: Write, caller: Text<'_>, queue: Option<QueueId>, now: UnixMs) {
    match write {
        Write::Take { kind, lease_end } => {
            effect::grant(key, kind, caller, lease_end);
            state::with(|state| count(&mut state.stats.granted_at_once));
        }
        Write::Confirm { lease_end } => {
            if let Some(end) = lease_end {
                effect::set_lease(key, end);
            }
            state::with(|state| count(&mut state.stats.resent));
        }
        Write::SetHolds { holds, lease_end } => effect::set_holds(key, caller, holds, lease_end),
        Write::SetLease(end) => effect::set_lease(key, end),
        Write::Free => {
            let handed = queue.is_some_and(|queue| hand_over(key, queue, Cause::Release, now));
            if !handed {
                effect::free(key);
            }
        }
    }
}

/// Where somebody waits for the lock, the alarm follows the end of its lease.
fn watch_lease(key: &Key<'_>) {
    if let Some(queue) = queue_of(key.ctx, key.name) {
        let lease_end = key.expiry();
        state::with(|state| state.room.review_after(queue, lease_end));
        alarm::set();
    }
}
