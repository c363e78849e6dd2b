//! Replication to replicas and the AOF: plain commands with absolute times, which a server without the module can replay.
//!
//! Each function returns whether the server has accepted the command. Valkey 9.2 accepts none while writes are paused.

use std::ffi::CStr;

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
        debug_assert!(expiry.is_none_or(is_decimal), "an expiry time is no number");
        let (ctx, name, value, set) = (self.ctx.raw(), self.name.raw(), value.raw(), c"SET".as_ptr());
        // The most frequent command has formats without an array. PXAT is created once: the server would create a string for
        // each word of a format.
        // SAFETY: context and strings are valid while the key is open, and the arguments match the format: "s" takes a string of
        // the server, "b" bytes and their number.
        unsafe {
            let result = match expiry {
                Some(digits) => {
                    let (format, pxat, start, len) = (c"sssb".as_ptr(), pxat(), digits.as_ptr(), digits.len());
                    api!(RedisModule_Replicate(ctx, set, format, name, value, pxat, start, len))
                }
                None => api!(RedisModule_Replicate(ctx, set, c"ss".as_ptr(), name, value)),
            };
            result == OK
        }
    }

    /// Replicates `HSET key field value`.
    #[must_use]
    pub fn replicate_hset(&mut self, field: StringRef<'_>, value: StringRef<'_>) -> bool {
        self.replicate(c"HSET", &[field, value])
    }

    /// Replicates `PEXPIREAT key expiry`. `expiry` is decimal.
    #[must_use]
    pub fn replicate_pexpireat(&mut self, expiry: &[u8]) -> bool {
        debug_assert!(is_decimal(expiry), "an expiry time is no number");
        self.replicate(c"PEXPIREAT", &[OwnedString::new(expiry).as_ref()])
    }

    /// Replicates `PERSIST key`.
    #[must_use]
    pub fn replicate_persist(&mut self) -> bool {
        self.replicate(c"PERSIST", &[])
    }

    /// Replicates `ZADD key score member`. `score` is decimal, or `inf`.
    #[must_use]
    pub fn replicate_zadd(&mut self, score: &[u8], member: StringRef<'_>) -> bool {
        debug_assert!(!score.is_empty(), "a member has no score");
        self.replicate(c"ZADD", &[OwnedString::new(score).as_ref(), member])
    }

    /// Replicates `ZREM key member`.
    #[must_use]
    pub fn replicate_zrem(&mut self, member: StringRef<'_>) -> bool {
        self.replicate(c"ZREM", &[member])
    }

    /// Replicates `DEL key`.
    #[must_use]
    pub fn replicate_del(&mut self) -> bool {
        self.replicate(c"DEL", &[])
    }

    /// Replicates a command whose arguments are the key and `arguments`.
    fn replicate(&mut self, command: &'static CStr, arguments: &[StringRef<'_>]) -> bool {
        let (ctx, name, command) = (self.ctx.raw(), self.name.raw(), command.as_ptr());
        // SAFETY: context and strings are valid while the key is open; "v" takes an array of strings and their number. A
        // `StringRef` has the layout of the pointer in it.
        unsafe {
            let array = arguments.as_ptr().cast::<*mut raw::RedisModuleString>();
            api!(RedisModule_Replicate(ctx, command, c"sv".as_ptr(), name, array, arguments.len())) == OK
        }
    }
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
