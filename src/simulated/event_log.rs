//! What happens on a node, in the order in which it happens: for those who check it.

use std::rc::Rc;

use super::ClientId;
use super::keyspace::{Entry, Keyspace};
use super::reply::Reply;

/// The number of a command, given by who sent it.
pub type Tag = u64;

/// Who changes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The module.
    Module,
    /// A command of the server.
    Command,
    /// A command of the server that puts a key there from elsewhere, whatever was there before.
    Arrival,
    /// The server, because the key has expired.
    Expiry,
    /// The server, because the slot has left, or another keyspace has come.
    Server,
}

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedEvent {
    /// A command begins to run.
    Began {
        client: ClientId,
        tag: Tag,
        db: i32,
        denies_blocking: bool,
    },
    /// It has come to its end, or has blocked its client.
    Ended {
        tag: Tag,
        blocked: bool,
    },
    /// The timer begins, or ends.
    TimerBegan,
    TimerEnded,
    /// A key has another value now, or none.
    Wrote {
        db: i32,
        key: Rc<[u8]>,
        entry: Option<Entry>,
        writer: Writer,
    },
    /// The module has said that it has changed a key: a change is complete.
    Signalled {
        db: i32,
        key: Rc<[u8]>,
    },
    /// Any key may have changed; these are the keys now.
    KeyspaceChanged {
        keyspace: Rc<Keyspace>,
    },
    /// The module lets a client go.
    ModuleUnblocked {
        tag: Tag,
    },
    /// Somebody has had the server let a client go.
    ClientUnblocked {
        client: ClientId,
    },
    /// The reply to a command inside a transaction or a script.
    Inner {
        tag: Tag,
        reply: Reply,
    },
    /// A reply was put into the buffer of a client.
    Replied {
        client: ClientId,
        tag: Tag,
        reply: Reply,
    },
    /// The module has published a message on a shard channel, which had so many subscribers.
    Published {
        channel: Rc<[u8]>,
        message: Rc<[u8]>,
        reached: usize,
    },
    /// The module has had the server publish a message on a channel of others, by this command.
    Announced {
        command: &'static str,
        channel: Rc<[u8]>,
        message: Rc<[u8]>,
    },
    /// A message was put into the buffer of a client, which has subscribed to a shard channel.
    Pushed {
        client: ClientId,
        message: Reply,
    },
    /// The message before which no other is in the buffer has left the server, and its client is there to read it.
    PushSent {
        client: ClientId,
    },
    /// A reply has left the server, and its client is there to read it.
    Sent {
        client: ClientId,
        tag: Tag,
    },
    /// A client that was blocked is free again, or gone.
    Freed {
        tag: Tag,
    },
    /// A connection is closed.
    Closed {
        client: ClientId,
    },
    /// The node is a master now, or a replica.
    RoleChanged,
    /// The process has ended, and another has begun.
    Restarted,
    /// A loop round is over.
    IterationEnded,
}
