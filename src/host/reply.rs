//! Replies.

use super::context::Context;
use crate::command::Reply;
use crate::core::Refusal;

pub fn integer(ctx: Context<'_>, value: i64) {
    // SAFETY: the context is that of a running command or reply callback.
    unsafe { api!(RedisModule_ReplyWithLongLong(ctx.raw(), value)) };
}

pub fn nil(ctx: Context<'_>) {
    // SAFETY: as in `integer`.
    unsafe { api!(RedisModule_ReplyWithNull(ctx.raw())) };
}

/// Refuses a request of `command`. The server counts it under its error code.
pub fn refusal(ctx: Context<'_>, refusal: Refusal, command: &str) {
    error(ctx, &refusal.text(command));
}

/// An error; `text` begins with its code.
pub fn error(ctx: Context<'_>, text: &str) {
    let text = std::ffi::CString::new(text).unwrap_or_default();
    // SAFETY: as in `integer`; the server copies the text.
    unsafe { api!(RedisModule_ReplyWithError(ctx.raw(), text.as_ptr())) };
}

/// A reply with a shape; each array and map is followed by exactly as many elements as it announces.
pub fn shaped(ctx: Context<'_>, reply: &Reply<'_>) {
    match reply {
        Reply::Nil => nil(ctx),
        Reply::Integer(value) => integer(ctx, *value),
        Reply::Bytes(text) => {
            // SAFETY: as in `integer`; the server copies the bytes.
            unsafe { api!(RedisModule_ReplyWithStringBuffer(ctx.raw(), text.as_ptr().cast(), text.len())) };
        }
        Reply::Array(items) => {
            // SAFETY: as in `integer`.
            unsafe { api!(RedisModule_ReplyWithArray(ctx.raw(), items.len() as _)) };
            items.iter().for_each(|item| shaped(ctx, item));
        }
        Reply::Map(pairs) => {
            // SAFETY: as in `integer`.
            unsafe { api!(RedisModule_ReplyWithMap(ctx.raw(), pairs.len() as _)) };
            for (name, value) in pairs {
                shaped(ctx, &Reply::word(name));
                shaped(ctx, value);
            }
        }
    }
}
