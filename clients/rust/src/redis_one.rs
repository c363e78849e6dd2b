//! Version 1 of the redis crate.

#[path = "connection.rs"]
pub(crate) mod connection;

pub(crate) use ::redis_1 as redis;

use crate::server::{Address, Source};

fn source(address: connection::Address) -> Source {
    Source(Address::One(address))
}
