//! Events: those that the module causes, and those that the server reports.

mod own_writes;
mod subscriptions;

use std::ffi::{CStr, c_int};

use redis_module::raw;

pub(super) use own_writes::find_modules;
pub use subscriptions::{subscribe, subscribe_to_roles, subscribe_to_sorted_sets};
pub(super) use subscriptions::{subscribe_at_load, subscribe_to_iterations};

/// A keyspace event that the module causes: its class and its name.
#[derive(Clone, Copy)]
pub struct Event(c_int, &'static CStr);

impl Event {
    /// A String was set.
    pub const SET: Self = Self(raw::REDISMODULE_NOTIFY_STRING, c"set");
    /// A field of a Hash was set.
    pub const HSET: Self = Self(raw::REDISMODULE_NOTIFY_HASH, c"hset");
    /// The expiry time of a key was set.
    pub const EXPIRE: Self = Self(raw::REDISMODULE_NOTIFY_GENERIC, c"expire");
    /// A member of a Sorted Set was added, or its score was changed.
    pub const ZADD: Self = Self(raw::REDISMODULE_NOTIFY_ZSET, c"zadd");
    /// A member of a Sorted Set was removed.
    pub const ZREM: Self = Self(raw::REDISMODULE_NOTIFY_ZSET, c"zrem");
    /// The expiry time of a key was removed.
    pub const PERSIST: Self = Self(raw::REDISMODULE_NOTIFY_GENERIC, c"persist");
    /// A key was deleted.
    pub const DEL: Self = Self(raw::REDISMODULE_NOTIFY_GENERIC, c"del");
}
