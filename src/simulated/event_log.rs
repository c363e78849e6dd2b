//! The events of a node, in their order, for the tests that check them.

use std::any::Any;
use std::rc::Rc;

use super::ClientId;
use super::keyspace::{Entry, Keyspace};
use super::reply::Reply;

/// The number of a command, which the sender chooses.
pub type Tag = u64;

/// The cause of a change to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The module.
    Module,
    /// A command of the server.
    Command,
    /// A command of the server that copies, moves or restores a key to this name. It replaces a key of this name, if there is
    /// one.
    Arrival,
    /// The server, because the key has expired.
    Expiry,
    /// The server, because the slot has moved to another node, or the keyspace was replaced.
    Server,
}

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedEvent {
    /// A command begins to run.
    Began {
        client: ClientId,
        tag: Tag,
        db: i32,
        denies_blocking: bool,
    },
    /// A command has ended, or has blocked its client.
    Ended {
        tag: Tag,
        blocked: bool,
    },
    /// The timer begins to run, or has ended.
    TimerBegan,
    TimerEnded,
    /// A key has changed. `entry` is `None` if it does not exist any more.
    Wrote {
        db: i32,
        key: Rc<[u8]>,
        entry: Option<Entry>,
        writer: Writer,
    },
    /// The module has signalled a key, which ends a change.
    Signalled {
        db: i32,
        key: Rc<[u8]>,
    },
    /// Any key may have changed. `keyspace` holds the keys after the change.
    KeyspaceChanged {
        keyspace: Rc<Keyspace>,
    },
    /// The module has unblocked a client.
    ModuleUnblocked {
        tag: Tag,
    },
    /// A client was unblocked with CLIENT UNBLOCK.
    ClientUnblocked {
        client: ClientId,
    },
    /// The reply to a command inside a transaction or a script.
    Inner {
        tag: Tag,
        reply: Reply,
    },
    /// The server has put a reply into the output buffer of a client.
    Replied {
        client: ClientId,
        tag: Tag,
        reply: Reply,
    },
    /// The module has published a message on a shard channel. `reached` is the number of subscribers.
    Published {
        channel: Rc<[u8]>,
        message: Rc<[u8]>,
        reached: usize,
    },
    /// The module has made the server publish a message on a channel of another lock library, with this command.
    Announced {
        command: &'static str,
        channel: Rc<[u8]>,
        message: Rc<[u8]>,
    },
    /// The server has put a message into the output buffer of a client that has subscribed to a shard channel.
    Pushed {
        client: ClientId,
        message: Reply,
    },
    /// The server has sent the first message in the client's output buffer, and the client can read it.
    PushSent {
        client: ClientId,
    },
    /// The server has sent a reply, and the client can read it.
    Sent {
        client: ClientId,
        tag: Tag,
    },
    /// A blocked client was freed: it can run commands again, or has disconnected.
    Freed {
        tag: Tag,
    },
    /// A connection was closed.
    Closed {
        client: ClientId,
    },
    /// The node has become a master or a replica.
    RoleChanged,
    /// The process has ended, and another one has started.
    Restarted,
    /// An event-loop iteration has ended.
    IterationEnded,
    /// What the observer sees of the module now, see [`Node::watch`](super::Node::watch).
    Seen(Seen),
}

/// A copy of the module's state, whose type the observer knows.
#[derive(Clone, Debug)]
pub struct Seen(pub Rc<dyn Any>);

/// Equal if they are the same copy.
impl PartialEq for Seen {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Seen {}
