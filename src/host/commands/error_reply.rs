//! Sends replies: errors, and values of every type.

use crate::command::Reply;
use crate::core::{Error, increment};
use crate::host::state::Context;
use crate::server;

/// Replies to `command` with an error. Counts NOTOWNER, and logs that a limit is reached.
pub fn error(ctx: &mut Context<'_>, command: &str, error: Error) {
    if error == Error::NotOwner {
        ctx.with_state(|state| increment(&mut state.stats.not_owner));
    }
    if matches!(error, Error::QueueFull | Error::SessionFull) {
        if let Some(line) = ctx.with_state(|state| state.refusals.record(error, server::monotonic_ms())) {
            ctx.warn(&line);
        }
    }
    ctx.reply_error(&error.text(command));
}

/// Sends a reply of any type.
pub fn send(ctx: &mut Context<'_>, reply: &Reply<'_>) {
    match reply {
        Reply::Nil => ctx.reply_nil(),
        Reply::Integer(value) => ctx.reply_integer(*value),
        Reply::Bytes(bytes) => ctx.reply_bytes(bytes),
        Reply::Array(items) => {
            ctx.reply_array(items.len());
            items.iter().for_each(|item| send(ctx, item));
        }
        Reply::Map(pairs) => {
            ctx.reply_map(pairs.len());
            for (name, value) in pairs {
                send(ctx, &Reply::text(name));
                send(ctx, value);
            }
        }
    }
}
