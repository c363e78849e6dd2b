//! The connections of a node.

use std::collections::VecDeque;

use super::blocked_client::BlockedClientId;
use super::journal::Tag;

/// A command that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub tag: Tag,
    pub words: Vec<Vec<u8>>,
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
    /// Commands whose replies are in its buffer.
    pub output: Vec<Tag>,
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
}
