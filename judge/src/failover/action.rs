//! What can happen in the model, and how a story tells it.

use std::fmt;

use super::state::{client_name, node_name};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// One unit of time passes.
    Tick,
    /// A replica receives what its master has written. Its clock is ahead by so much.
    Replicate {
        node: usize,
        ahead: i8,
    },
    /// A master receives an acknowledgement.
    Acknowledge {
        master: usize,
        replica: usize,
    },
    Promote {
        node: usize,
    },
    /// A node becomes a replica of another master.
    Follow {
        node: usize,
        master: usize,
    },
    /// A master fails and starts again, with or without its last writes.
    Restart {
        node: usize,
        forgets: bool,
    },
    Stall {
        node: usize,
    },
    Resume {
        node: usize,
    },
    /// A request of a client is granted.
    Ask {
        client: usize,
        request: Request,
    },
    Release {
        client: usize,
        node: usize,
    },
    /// The release of an old token arrives late, or an operator deletes the key.
    ReleaseOld {
        node: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub node: usize,
    pub lease: u8,
    /// The client uses a new token.
    pub is_new: bool,
    /// The reply is lost.
    pub is_lost: bool,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tick => write!(f, "a tick passes"),
            Self::Replicate { node, ahead: 0 } => write!(f, "{} receives the key", node_name(node)),
            Self::Replicate { node, ahead } => {
                write!(f, "{} receives the key, its clock differs by {ahead}", node_name(node))
            }
            Self::Acknowledge { master, replica } => {
                write!(f, "{} receives an acknowledgement of {}", node_name(master), node_name(replica))
            }
            Self::Promote { node } => write!(f, "{} is promoted", node_name(node)),
            Self::Follow { node, master } => {
                write!(f, "{} becomes a replica of {}", node_name(node), node_name(master))
            }
            Self::Restart { node, forgets: true } => write!(f, "{} fails and starts without the key", node_name(node)),
            Self::Restart { node, .. } => write!(f, "{} fails and starts with the key", node_name(node)),
            Self::Stall { node } => write!(f, "{} stalls", node_name(node)),
            Self::Resume { node } => write!(f, "{} continues", node_name(node)),
            Self::Ask { client, request: Request { node, lease, is_new, is_lost } } => {
                let (client, node) = (client_name(client), node_name(node));
                let token = if is_new { "a new token" } else { "the same token" };
                let reply = if is_lost { ", but gets no reply" } else { "" };
                write!(f, "{client} asks {node} with {token} and is granted a lease of {lease}{reply}")
            }
            Self::Release { client, node } => write!(f, "{} releases at {}", client_name(client), node_name(node)),
            Self::ReleaseOld { node } => write!(f, "{} receives the release of an old token", node_name(node)),
        }
    }
}
