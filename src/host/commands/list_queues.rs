//! Executes `LOCK.QUEUES`, which looks at all locks that are waited for.

use super::error_reply;
use crate::command::{Queues, Reply};
use crate::core::Error;
use crate::host::state::{self, Context, Locks};
use crate::server::{self, Arguments, RunCommand};

/// The command.
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
    // The reply borrows from the state, and sending it may call back, so it is copied.
    Ok(state::with(|state| Queues::report(&state.waiting.most_contended(db, count), now).into_owned()))
}
