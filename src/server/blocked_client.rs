//! How a module and the server refer to a blocked client.

use std::num::NonZeroU64;

use redis_module::raw;

/// The module's own number for a blocked client. The server hands it back in each callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedClientId(pub NonZeroU64);

/// A blocked client. The module keeps it until [`Module::freed`](super::Module::freed), so that
/// [`Module::blocked_client`](super::Module::blocked_client) can return it.
pub struct BlockedClient {
    /// Null once the client is freed.
    pub(super) handle: *mut raw::RedisModuleBlockedClient,
    /// Whether the module has made its reply.
    pub(super) answered: bool,
}
