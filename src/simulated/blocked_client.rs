//! A blocked client: its number, what the module keeps of it, and what the server keeps of it.

use std::num::NonZeroU64;

use super::ClientId;
use super::event_log::Tag;
use super::reply::Reply;

/// The module's own number for a blocked client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockedClientId(pub NonZeroU64);

/// A blocked client. The module keeps it until the client is freed, so that
/// [`Module::blocked_client`](super::Module::blocked_client) can return it.
pub struct BlockedClient {
    pub(super) answered: bool,
}

/// The server's record of a blocked client. It exists until the server frees the client.
pub(super) struct Blocked {
    pub client: ClientId,
    pub tag: Tag,
    /// The key on which it is blocked, with its database.
    pub key: (i32, Vec<u8>),
    /// Whether the module or CLIENT UNBLOCK TIMEOUT has unblocked it.
    pub is_unblocked: bool,
    /// Whether the server has unblocked it by itself, which happens at most once.
    pub is_dismissed: bool,
    /// Whether the client has disconnected, or the server has replied by itself.
    pub has_ended: bool,
    /// The reply that the server keeps until the end of the event-loop iteration.
    pub kept: Option<Reply>,
}

impl Blocked {
    pub fn new(client: ClientId, tag: Tag, key: (i32, Vec<u8>)) -> Self {
        Self { client, tag, key, is_unblocked: false, is_dismissed: false, has_ended: false, kept: None }
    }
}
