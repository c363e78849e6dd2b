//! Runs a request to look at a lock.

use std::ffi::c_int;

use redis_module::raw;

use super::clock;
use super::context::Context;
use super::execute::answer;
use super::key::{Key, Mode};
use super::reply;
use super::state::{self, State};
use super::text::Arguments;
use crate::command::{Inspection, Sight};
use crate::core::{Lock, Refusal, SessionId};

/// The server's entry to a command that looks at a lock.
pub unsafe extern "C" fn run<I: Inspection>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's own context and arguments, valid while this command runs.
    let (ctx, arguments) = unsafe { (Context::new(ctx), Arguments::new(argv, argc)) };
    answer(ctx, I::NAME, || inspect::<I>(ctx, arguments))
}

fn inspect<I: Inspection>(ctx: Context<'_>, arguments: Arguments<'_>) -> Result<(), Refusal> {
    let name = arguments.text(1)?;
    let inspection = I::parse(arguments.words_from(2))?;

    let key = Key::open(ctx, name, Mode::Read);
    let (lock, now, db) = (key.read()?, clock::now(), ctx.db());
    let report = state::with(|State { room, blocked, sessions, .. }| {
        let queue = room.queue_of(db, name.bytes());
        let is_of = |id: &SessionId| match (&lock, sessions.get(*id)) {
            (Lock::Held(held), Some(session)) => session.is_of(held),
            _ => false,
        };
        let session = sessions.of(db, name.bytes()).filter(is_of);
        let waiters = queue.into_iter().flat_map(|queue| room.waiters(queue));
        let sight = Sight {
            lock: &lock,
            now,
            session: session.map_or_else(Vec::new, |id| sessions.clients(id).collect()),
            waiting: queue.map_or(0, |queue| room.waiting_for(queue)),
            waiters: waiters.map(|waiter| {
                let client = blocked.client_id(waiter.connection);
                (waiter, client)
            }),
        };
        // The reply borrows from the room, and answering may call back, so it is copied.
        inspection.report(sight).into_owned()
    });
    reply::shaped(ctx, &report);
    Ok(())
}
