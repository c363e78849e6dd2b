//! How a module and the server name a blocked client to each other.

use std::num::NonZeroU64;

/// A module's own number for a blocked client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockedClientId(pub NonZeroU64);

/// A client that is blocked. The module keeps it, so that [`Module::blocked_client`](super::Module::blocked_client) finds it,
/// until it is freed.
pub struct BlockedClient {
    pub(super) answered: bool,
}
