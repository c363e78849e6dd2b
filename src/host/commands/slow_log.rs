//! Executes LOCK.SLOWLOG, which lists the latest waits that took long.

use super::error_reply;
use crate::command::{Reply, SlowLogRequest};
use crate::host::state::{Context, Locks};
use crate::server::{Arguments, RunCommand};

/// The command LOCK.SLOWLOG.
pub struct SlowLogCommand;

impl RunCommand<Locks> for SlowLogCommand {
    const NAME: &'static str = SlowLogRequest::NAME;

    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        match SlowLogRequest::parse(arguments.arguments_from(1)) {
            Ok(SlowLogRequest::Get(count)) => {
                // The reply borrows from the state. It is copied, because sending it may call the module back.
                let list = ctx.with_state(|state| SlowLogRequest::list(&state.locks.slow_log, count).into_owned());
                error_reply::send(ctx, &list);
            }
            Ok(SlowLogRequest::Len) => {
                let len = ctx.with_state(|state| Reply::count(state.locks.slow_log.entry_count()));
                error_reply::send(ctx, &len);
            }
            Ok(SlowLogRequest::Reset) => {
                ctx.with_state(|state| state.locks.slow_log.clear());
                ctx.reply_simple(c"OK");
            }
            Err((error, command)) => error_reply::error(ctx, command, error),
        }
    }
}
