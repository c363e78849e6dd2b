//! Keyspace events, with the names that keyspace notifications use.

/// An event that the module causes.
#[derive(Clone, Copy)]
pub struct Event(#[expect(dead_code, reason = "the module sends no events here")] &'static str);

impl Event {
    pub const SET: Self = Self("set");
    pub const HSET: Self = Self("hset");
    pub const EXPIRE: Self = Self("expire");
    pub const ZADD: Self = Self("zadd");
    pub const ZREM: Self = Self("zrem");
    pub const PERSIST: Self = Self("persist");
    pub const DEL: Self = Self("del");
}
