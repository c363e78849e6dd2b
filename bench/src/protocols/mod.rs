//! The ways to lock that the clients of this process know: this module's commands, and those of libraries for which there is
//! no package to run.

mod plain;
mod redisson;
pub mod scripts;

pub use plain::{
    LOCK, LOCK_BLOCK, LOCK_NOTIFY, PERMIT_BLOCK, PERMITS, PING, Plain, REENTER, SET_NX_DEL, SET_NX_POLL, SET_NX_SCRIPT,
};
pub use redisson::{CHANNEL, LATCH, UNLOCK};

use crate::connection::Reply;

/// A way to lock.
#[derive(Clone, Copy)]
pub enum Protocol {
    Plain(Plain),
    Redisson,
}

/// A client of it, which holds one lock at a time.
pub enum Client {
    Plain(Box<plain::Client>),
    Redisson(Box<redisson::Client>),
}

impl Protocol {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain(plain) => plain.name,
            Self::Redisson => "Redisson's protocol",
        }
    }

    /// The protocol of that name.
    pub fn named(name: &str) -> Option<Self> {
        let plain = [LOCK_BLOCK, LOCK_NOTIFY, SET_NX_POLL, SET_NX_SCRIPT, plain::SET_NX_DELEX, plain::SET_NX_DELIFEQ];
        plain.into_iter().map(Self::Plain).chain([Self::Redisson]).find(|protocol| protocol.name() == name)
    }

    /// The connections of each client.
    pub fn connections(self) -> usize {
        match self {
            Self::Plain(_) => 1,
            Self::Redisson => 2,
        }
    }

    /// Connects client `number`.
    pub async fn connect(self, port: u16, number: usize) -> Client {
        match self {
            Self::Plain(plain) => Client::Plain(Box::new(plain::Client::connect(plain, port, number).await)),
            Self::Redisson => Client::Redisson(Box::new(redisson::Client::connect(port, number).await)),
        }
    }

    /// The command lines by which another client holds the lock, until the Unix time in milliseconds.
    pub fn held_by_another(self, lock: &str, until_ms: i64) -> Vec<String> {
        match self {
            Self::Plain(_) => vec![format!("SET {lock} another PXAT {until_ms}")],
            Self::Redisson => vec![format!("HSET {lock} another:1 1"), format!("PEXPIREAT {lock} {until_ms}")],
        }
    }
}

impl Client {
    /// Waits until the client holds the lock.
    pub async fn acquire(&mut self, lock: &str) {
        match self {
            Self::Plain(client) => client.acquire(lock).await,
            Self::Redisson(client) => client.acquire(lock).await,
        }
    }

    pub async fn release(&mut self, lock: &str) {
        match self {
            Self::Plain(client) => client.release(lock).await,
            Self::Redisson(client) => client.release(lock).await,
        }
    }
}

/// The command by which this server deletes a key if it has a certain value; None for an older server.
pub fn compare_and_delete(client: &mut support::Client) -> Option<Plain> {
    let mut knows = |command: &str| {
        let known = client.run(&format!("COMMAND INFO {command}"));
        known.items().iter().any(|entry| *entry != support::Reply::Nil)
    };
    let delex = knows("DELEX").then_some(plain::SET_NX_DELEX);
    delex.or_else(|| knows("DELIFEQ").then_some(plain::SET_NX_DELIFEQ))
}

#[track_caller]
fn unexpected(reply: &Reply) -> ! {
    panic!("a reply that the protocol does not know: {reply:?}")
}
