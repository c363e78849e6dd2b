//! Keyspace events, by the names that keyspace notifications use.

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;

use redis_module::raw;

/// An event that the module causes, with its class.
#[derive(Clone, Copy)]
pub struct Event(pub(super) c_int, pub(super) &'static CStr);

impl Event {
    pub const SET: Self = Self(raw::REDISMODULE_NOTIFY_STRING, c"set");
    pub const HSET: Self = Self(raw::REDISMODULE_NOTIFY_HASH, c"hset");
    pub const EXPIRE: Self = Self(raw::REDISMODULE_NOTIFY_GENERIC, c"expire");
    pub const ZADD: Self = Self(raw::REDISMODULE_NOTIFY_ZSET, c"zadd");
    pub const ZREM: Self = Self(raw::REDISMODULE_NOTIFY_ZSET, c"zrem");
    pub const PERSIST: Self = Self(raw::REDISMODULE_NOTIFY_GENERIC, c"persist");
    pub const DEL: Self = Self(raw::REDISMODULE_NOTIFY_GENERIC, c"del");
}

/// The name of an event that the server reports.
#[derive(Clone, Copy)]
pub struct EventName<'c> {
    start: *const c_char,
    callback: PhantomData<&'c ()>,
}

impl<'c> EventName<'c> {
    /// Creates the name of an event from a C string.
    ///
    /// # Safety
    ///
    /// `start` is a C string that lives, unchanged, for `'c`.
    pub(super) unsafe fn new(start: *const c_char) -> Self {
        Self { start, callback: PhantomData }
    }

    /// Returns the name as bytes.
    pub fn bytes(self) -> &'c [u8] {
        // SAFETY: by the contract of `new`.
        unsafe { CStr::from_ptr(self.start) }.to_bytes()
    }
}
