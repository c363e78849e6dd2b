//! Executes LOCK.QUEUES, which lists the locks with the longest queues.

use super::error_reply;
use crate::command::{Queues, Reply};
use crate::core::Error;
use crate::host::state::{Context, Locks};
use crate::server::{self, Arguments, RunCommand};

/// The command LOCK.QUEUES.
pub struct ListQueues;

impl RunCommand<Locks> for ListQueues {
    const NAME: &'static str = Queues::NAME;

    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        match list(ctx, arguments) {
            Ok(report) => error_reply::send(ctx, &report),
            Err(error) => error_reply::error(ctx, Self::NAME, error),
        }
    }
}

fn list(ctx: &Context<'_>, arguments: Arguments<'_>) -> Result<Reply<'static>, Error> {
    let Queues { count } = Queues::parse(arguments.arguments_from(1))?;
    let (db, now) = (ctx.db(), server::now_ms());
    // The reply borrows from the state. It is copied, because sending it may call the module back.
    Ok(ctx.with_state(|state| Queues::report(&state.locks.most_contended(db, count), now).into_owned()))
}
