//! The names by which a module and the server identify a blocked client.

use std::num::NonZeroU64;

/// The module's own number for a blocked client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockedClientId(pub NonZeroU64);

/// A blocked client. The module keeps it until the client is freed, so that
/// [`Module::blocked_client`](super::Module::blocked_client) can return it.
pub struct BlockedClient {
    pub(super) answered: bool,
}
