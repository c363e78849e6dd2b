//! The connections of a node.

use std::collections::{BTreeSet, VecDeque};

use super::blocked_client::BlockedClientId;
use super::event_log::Tag;
use super::reply::Reply;

/// A command that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub tag: Tag,
    pub words: Vec<Vec<u8>>,
}

/// One thing in the buffer of a client.
#[derive(Clone, Copy)]
pub(super) enum Output {
    /// The reply to this command.
    Reply(Tag),
    /// A message that nobody asked for.
    Message,
}

/// A connection, as the server has it.
#[derive(Default)]
pub(super) struct Client {
    pub db: i32,
    /// What has arrived and was not run yet.
    pub input: VecDeque<Sent>,
    /// What was queued since MULTI.
    pub transaction: Option<Vec<Sent>>,
    /// A command was refused since.
    pub is_spoiled: bool,
    /// What is in its buffer, in that order.
    pub output: Vec<Output>,
    /// It speaks RESP3, in which messages can be told from replies.
    pub resp3: bool,
    /// The shard channels to which it has subscribed.
    pub channels: BTreeSet<Vec<u8>>,
    pub blocked: Option<BlockedClientId>,
    /// The other side has closed it.
    pub peer_closed: bool,
    /// The server closes it when it has been told everything.
    pub closing: bool,
}

impl Client {
    /// Whether its next command can run.
    pub fn is_free(&self) -> bool {
        self.blocked.is_none() && !self.closing
    }

    /// Whether it has subscribed to a channel, and can do nothing else.
    pub fn listens_only(&self) -> bool {
        !self.resp3 && self.is_subscribed()
    }

    /// Whether it has subscribed to a channel.
    pub fn is_subscribed(&self) -> bool {
        !self.channels.is_empty()
    }

    /// A message to this client.
    pub fn message<const LEN: usize>(&self, items: [Reply; LEN]) -> Reply {
        if self.resp3 { Reply::Push(items.to_vec()) } else { Reply::Array(items.to_vec()) }
    }
}
