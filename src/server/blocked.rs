//! Clients that the server has blocked for the module.
//!
//! ```text
//!   Key::block ──> blocked ── unblock ──> Module::answer ──┬──────────────────> Module::freed
//!                     │                                    └─> Module::disconnected ──> Module::freed
//!                     ├── CLIENT UNBLOCK id TIMEOUT ──> Module::answer ───────> Module::freed
//!                     └── closed, or replied to by the server ──> Module::disconnected ─> Module::freed
//! ```
//!
//! The client is blocked **on keys**, and without a time-out of the server. Only in that form does the server reply to a client
//! that times out in the event-loop iteration in which it is unblocked (Redis 7.0 and 7.2 lose the reply or crash otherwise),
//! provide the private data in every callback, and send -MOVED by itself. The module never signals the key, which is not the
//! key of the command but a sibling key in the same slot. The module calls [`unblock`], and the server asks [`Module::answer`]
//! for the reply.
//!
//! The server decides when it asks for that reply:
//!
//! - Redis 7.0 and 7.2 ask inside `unblock`, and the reply is in the client's buffer when `unblock` returns.
//! - Redis 7.4 and later ask at the end of the event-loop iteration. A client that disconnects before that gets no reply.
//! - Valkey and Redict also ask inside `unblock`, but the reply goes to a stand-in client (a "fake client" in the server's
//!   source). The server passes the reply on at the end of the event-loop iteration, right after it asks the module to free the
//!   client. A client that disconnects before that gets no reply.
//!
//! The layer above learns only whether the client may have got the reply.
//!
//! [`Module::answer`]: super::Module::answer

mod callbacks;

use std::num::NonZeroU64;

use redis_module::raw;

pub use callbacks::unblock;

/// The module's own number for a blocked client. The server passes it to each callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedClientId(pub NonZeroU64);

/// A blocked client. The module keeps it until [`Module::freed`](super::Module::freed), so that
/// [`Module::blocked_client`](super::Module::blocked_client) can return it.
pub struct BlockedClient {
    /// Null after the server has freed the client.
    handle: *mut raw::RedisModuleBlockedClient,
    /// Whether the module has made its reply.
    has_reply: bool,
}
