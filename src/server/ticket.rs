//! How a module and the server name a blocked client to each other.

use std::num::NonZeroU64;

use redis_module::raw;

/// A module's own number for a blocked client, which the server hands back with each callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub NonZeroU64);

/// A client that is blocked. The module keeps it, so that [`Module::blocked_client`](super::Module::blocked_client) finds it, until it is freed.
pub struct BlockedClient {
    /// Null once it is freed.
    pub(super) handle: *mut raw::RedisModuleBlockedClient,
    /// The module has made its reply.
    pub(super) answered: bool,
}
