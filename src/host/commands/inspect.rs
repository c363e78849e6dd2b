//! Executes the commands that read a lock: LOCK.INFO and LOCK.WAITERS.

use std::marker::PhantomData;

use super::error_reply;
use crate::command::{Inspection, LockView, Reply, Requester};
use crate::core::{Error, HoldId, HoldKey, Lock, OrBug};
use crate::host::state::{Context, Locks, State};
use crate::host::{keys::lock_key, state::pending_replies::pending_id};
use crate::server::{self, Arguments, Mode, RunCommand};

/// The command for inspections of type `I`.
pub struct Inspect<I>(PhantomData<I>);

impl<I: Inspection + 'static> RunCommand<Locks> for Inspect<I> {
    const NAME: &'static str = I::NAME;

    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        match inspect::<I>(ctx, arguments) {
            Ok(report) => error_reply::send(ctx, &report),
            Err(error) => error_reply::error(ctx, I::NAME, error),
        }
    }
}

fn inspect<I: Inspection>(ctx: &mut Context<'_>, arguments: Arguments<'_>) -> Result<Reply<'static>, Error> {
    let name = arguments.get(1).ok_or(Error::Arity)?;
    let inspection = I::parse(arguments.arguments_from(2))?;

    let key = ctx.open(name, Mode::Read);
    let (now, db) = (server::now_ms(), key.ctx().db());
    let lock = lock_key::read(&key, None, now)?;
    Ok(key.with_state(|state| {
        let recovery_ms = state.grants_suspended_ms();
        let State { locks, pending: entries, .. } = state;
        let queue = locks.record_of(db, name.bytes());
        let is_of = |id: &HoldId| match (&lock, locks.hold(*id)) {
            (Lock::Held(holder), Some(hold)) => hold.matches(holder),
            _ => false,
        };
        let session = locks.find_session(HoldKey::whole(db, name.bytes())).filter(is_of);
        let waiters = queue.into_iter().flat_map(|queue| locks.waiters(queue));
        let view = LockView {
            lock: &lock,
            now,
            session: session.and_then(|id| locks.client_of(id)),
            recovery_ms,
            waiting: queue.map_or(0, |queue| locks.waiter_count_of(queue)),
            waiters: waiters.map(|waiter| {
                let entry = entries.get(pending_id(waiter.id)).or_bug("a queue has a request that no client waits for");
                let requester = Requester {
                    client: entry.map_or(-1, |entry| entry.client),
                    channel: entry.and_then(|entry| entry.channel()).map(|channel| &**channel),
                };
                (waiter, requester)
            }),
        };
        // The reply borrows from the state. It is copied, because sending it may call the module back.
        inspection.report(view).into_owned()
    }))
}
