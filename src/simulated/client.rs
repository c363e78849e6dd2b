//! The connections of a node.

use std::collections::{BTreeSet, VecDeque};

use super::blocked_client::BlockedClientId;
use super::event_log::Tag;
use super::reply::Reply;

/// A command that a client has sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub tag: Tag,
    pub words: Vec<Vec<u8>>,
}

/// An item in the output buffer of a client.
#[derive(Clone, Copy)]
pub(super) enum Output {
    /// The reply to the command with this tag.
    Reply(Tag),
    /// A message, which is no reply to a command.
    Message,
}

/// The server's state of a connection.
#[derive(Default)]
pub(super) struct Client {
    pub db: i32,
    /// Commands that have arrived and have not been run yet.
    pub input: VecDeque<Sent>,
    /// The commands that were queued since MULTI.
    pub transaction: Option<Vec<Sent>>,
    /// Whether a command was refused since MULTI.
    pub is_spoiled: bool,
    /// The output buffer, in the order in which it is sent.
    pub output: Vec<Output>,
    /// Whether the client uses RESP3, in which messages have a type of their own.
    pub resp3: bool,
    /// The shard channels to which the client has subscribed.
    pub channels: BTreeSet<Vec<u8>>,
    pub blocked: Option<BlockedClientId>,
    /// Whether the client has closed its side of the connection.
    pub peer_closed: bool,
    /// Whether the server closes the connection as soon as it has sent the output buffer.
    pub closing: bool,
}

impl Client {
    /// Returns whether the next command of the client can run.
    pub fn is_free(&self) -> bool {
        self.blocked.is_none() && !self.closing
    }

    /// Returns whether the client has subscribed to a channel, and can use no commands but those of subscriptions.
    pub fn listens_only(&self) -> bool {
        !self.resp3 && self.is_subscribed()
    }

    /// Returns whether the client has subscribed to a channel.
    pub fn is_subscribed(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Returns a message to this client in its protocol.
    pub fn message<const LEN: usize>(&self, items: [Reply; LEN]) -> Reply {
        if self.resp3 { Reply::Push(items.to_vec()) } else { Reply::Array(items.to_vec()) }
    }
}
