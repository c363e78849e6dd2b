//! The server, or the cluster, by the version of the redis crate that the program has. One connection to each node has all
//! commands, in order, and the messages of the node. It is opened when it is needed, and again when it is lost.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Fault;
use crate::events::Events;
use crate::hold::NO_CONNECTION;
#[cfg(feature = "redis-1")]
use crate::redis_one::connection as one;
#[cfg(feature = "redis-2")]
use crate::redis_two::connection as two;

/// A server that has not replied for so long is taken for lost, and a request without a message is sent again. Less than
/// `lock.rejoin-grace-ms`.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// Returns until when a command is waited for whose caller has no other limit.
pub(crate) fn patience() -> Instant {
    Instant::now() + SILENCE
}

/// What [`Locks::new`](crate::Locks::new) connects to: a client of the redis crate, with a configuration of the connection or
/// without; one of its Sentinel (feature `sentinel`); the builder of one of a cluster (feature `cluster`).
pub struct Source(pub(crate) Address);

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Source").finish_non_exhaustive()
    }
}

pub(crate) enum Address {
    #[cfg(feature = "redis-1")]
    One(one::Address),
    #[cfg(feature = "redis-2")]
    Two(two::Address),
}

enum Target {
    #[cfg(feature = "redis-1")]
    One(one::Target),
    #[cfg(feature = "redis-2")]
    Two(two::Target),
}

pub(crate) struct Server {
    pub(crate) events: Arc<Events>,
    target: Target,
}

macro_rules! either {
    ($target:expr, $name:ident => $value:expr) => {
        match $target {
            #[cfg(feature = "redis-1")]
            Target::One($name) => $value,
            #[cfg(feature = "redis-2")]
            Target::Two($name) => $value,
        }
    };
}

impl Server {
    pub(crate) async fn new(source: Source, events: Arc<Events>) -> Result<Self, Fault> {
        let target = match source.0 {
            #[cfg(feature = "redis-1")]
            Address::One(address) => Target::One(one::Target::new(address, &events).await?),
            #[cfg(feature = "redis-2")]
            Address::Two(address) => Target::Two(two::Target::new(address, &events).await?),
        };
        Ok(Self { events, target })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        either!(&self.target, target => target.is_cluster())
    }

    /// Returns the start of the channel for a key, none if there can be none. In a cluster the channel is in the slot of the key. At
    /// one server each connection has a channel, because the server may send messages to a lost one.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, clippy::unnecessary_wraps, reason = "one server has all channels")
    )]
    pub(crate) fn prefix(&self, key: &[u8]) -> Option<Vec<u8>> {
        #[cfg(feature = "cluster")]
        if self.is_cluster() {
            return either!(&self.target, target => target.prefix(key));
        }
        Some(format!("redis-lock:{}:", self.events.disconnections()).into_bytes())
    }

    /// Returns the number of a connection that executes commands in the order in which they are sent. In a cluster there is none,
    /// because a command that a node redirects is sent again.
    pub(crate) fn in_order(&self, connection: u64) -> u64 {
        if self.is_cluster() { NO_CONNECTION } else { connection }
    }

    /// Returns the reply to a command, which must come until an instant. In a cluster, the node of the key has it.
    pub(crate) async fn call(&self, key: &[u8], words: &Words, until: Instant) -> Result<Reply, Fault> {
        either!(&self.target, target => target.call(&self.events, key, words, until).await)
    }
}

/// The words of a command.
pub(crate) struct Words {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<usize>,
}

impl Words {
    pub(crate) fn new(name: &str) -> Self {
        Self { bytes: Vec::with_capacity(160), ends: Vec::with_capacity(12) }.word(name)
    }

    pub(crate) fn word(mut self, word: impl AsRef<[u8]>) -> Self {
        self.bytes.extend_from_slice(word.as_ref());
        self.ends.push(self.bytes.len());
        self
    }

    /// Adds an option that has a number.
    pub(crate) fn number(self, name: &str, number: u64) -> Self {
        let mut words = self.word(name);
        let _ = write!(words.bytes, "{number}");
        words.ends.push(words.bytes.len());
        words
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// What a server replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    Other,
}
