//! Replication to replicas and the AOF: plain commands with absolute times, which a server without the module can
//! replay.
//!
//! Each function returns whether the server has accepted the command. Valkey 9.2 accepts none while writes are paused.

// In a format, "s" stands for a string of the server, "b" for bytes and their number. The server creates one string for "b", none
// for "s", and two for an integer. So integers are passed as decimal digits in bytes, and the word PXAT is created once.

use std::ffi::c_int;

use redis_module::raw;

use super::Key;
use crate::server::api::OK;
use crate::server::state::state;
use crate::server::string::{OwnedString, StringRef};

impl<M> Key<'_, '_, M> {
    /// Replicates `SET key value [PXAT expiry]`. `expiry` is decimal.
    #[inline(always)]
    #[must_use]
    pub fn replicate_set(&mut self, value: StringRef<'_>, expiry: Option<&[u8]>) -> bool {
        debug_assert!(!self.is_in_use(), "a write is replicated that was not made");
        let (ctx, name, value, set) = (self.ctx.raw(), self.name.raw(), value.raw(), c"SET".as_ptr());
        match expiry {
            Some(digits) => {
                debug_assert!(is_decimal(digits), "an expiry time is no number");
                let (pxat, start, len) = (pxat(), digits.as_ptr(), digits.len());
                // SAFETY: context and strings are valid while the key is open, and the arguments match the format.
                let result =
                    unsafe { api!(RedisModule_Replicate(ctx, set, c"sssb".as_ptr(), name, value, pxat, start, len)) };
                is_accepted(result)
            }
            // SAFETY: likewise.
            None => is_accepted(unsafe { api!(RedisModule_Replicate(ctx, set, c"ss".as_ptr(), name, value)) }),
        }
    }

    /// Replicates `HSET key field value`.
    #[must_use]
    pub fn replicate_hset(&mut self, field: StringRef<'_>, value: StringRef<'_>) -> bool {
        let (ctx, name, field, value) = (self.ctx.raw(), self.name.raw(), field.raw(), value.raw());
        // SAFETY: as in `replicate_set`.
        is_accepted(unsafe { api!(RedisModule_Replicate(ctx, c"HSET".as_ptr(), c"sss".as_ptr(), name, field, value)) })
    }

    /// Replicates `PEXPIREAT key expiry`. `expiry` is decimal.
    #[must_use]
    pub fn replicate_pexpireat(&mut self, expiry: &[u8]) -> bool {
        debug_assert!(is_decimal(expiry), "an expiry time is no number");
        let (ctx, name) = (self.ctx.raw(), self.name.raw());
        let (start, len) = (expiry.as_ptr(), expiry.len());
        // SAFETY: as in `replicate_set`.
        is_accepted(unsafe {
            api!(RedisModule_Replicate(ctx, c"PEXPIREAT".as_ptr(), c"sb".as_ptr(), name, start, len))
        })
    }

    /// Replicates `PERSIST key`.
    #[must_use]
    pub fn replicate_persist(&mut self) -> bool {
        let (ctx, name) = (self.ctx.raw(), self.name.raw());
        // SAFETY: as in `replicate_set`.
        is_accepted(unsafe { api!(RedisModule_Replicate(ctx, c"PERSIST".as_ptr(), c"s".as_ptr(), name)) })
    }

    /// Replicates `ZADD key score member`. `score` is decimal, or `inf`.
    #[must_use]
    pub fn replicate_zadd(&mut self, score: &[u8], member: StringRef<'_>) -> bool {
        debug_assert!(!score.is_empty(), "a member has no score");
        let (ctx, name, member) = (self.ctx.raw(), self.name.raw(), member.raw());
        let (start, len) = (score.as_ptr(), score.len());
        // SAFETY: as in `replicate_set`.
        is_accepted(unsafe {
            api!(RedisModule_Replicate(ctx, c"ZADD".as_ptr(), c"sbs".as_ptr(), name, start, len, member))
        })
    }

    /// Replicates `ZREM key member`.
    #[must_use]
    pub fn replicate_zrem(&mut self, member: StringRef<'_>) -> bool {
        let (ctx, name, member) = (self.ctx.raw(), self.name.raw(), member.raw());
        // SAFETY: as in `replicate_set`.
        is_accepted(unsafe { api!(RedisModule_Replicate(ctx, c"ZREM".as_ptr(), c"ss".as_ptr(), name, member)) })
    }

    /// Replicates `DEL key`.
    #[must_use]
    pub fn replicate_del(&mut self) -> bool {
        let (ctx, name) = (self.ctx.raw(), self.name.raw());
        // SAFETY: as in `replicate_set`.
        is_accepted(unsafe { api!(RedisModule_Replicate(ctx, c"DEL".as_ptr(), c"s".as_ptr(), name)) })
    }
}

/// Returns whether the server has accepted a command to be replicated.
#[inline(always)]
fn is_accepted(result: c_int) -> bool {
    result == OK
}

/// Returns whether bytes are a positive integer in decimal.
fn is_decimal(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

/// Returns the argument `PXAT` of SET.
fn pxat() -> *mut raw::RedisModuleString {
    let mut word = state().pxat.borrow_mut();
    word.get_or_insert_with(|| OwnedString::new(b"PXAT")).as_ref().raw()
}
