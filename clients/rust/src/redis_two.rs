//! Version 2 of the redis crate.

#[path = "connection.rs"]
#[cfg_attr(feature = "redis-1", expect(clippy::duplicate_mod, reason = "the same for both versions"))]
pub(crate) mod connection;

pub(crate) use ::redis_2 as redis;

use crate::server::{Address, Source};

fn source(address: connection::Address) -> Source {
    Source(Address::Two(address))
}
