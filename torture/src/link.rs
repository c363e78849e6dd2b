//! One connection, and when what was sent and received on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::connection::{Connection, Sender, packed};
use support::{Reply, bytes_of};

use crate::network::Way;

/// How long a connection may take to be made, above the longest stall.
const CONNECTING: Duration = Duration::from_secs(10);

/// A connection with a database selected. It never connects again by itself.
pub struct Link {
    connection: Connection,
    port: u16,
    database: u32,
    id: i64,
    /// What it goes through, if the network may be bad.
    way: Option<Arc<Way>>,
    /// An answer has not come in time, so the next one would be taken for that to something else.
    is_dead: bool,
}

impl Link {
    /// None when the server closes the connection on the way, or does not listen.
    pub fn open(port: u16, database: u32, resp3: bool) -> Option<Self> {
        Self::greet(Connection::open(port, CONNECTING).ok()?, port, None, database, resp3)
    }

    /// The same, through a network that may be bad.
    pub fn open_through(
        way: impl FnOnce(u16) -> Option<(Connection, Way)>,
        port: u16,
        database: u32,
        resp3: bool,
    ) -> Option<Self> {
        let (connection, way) = way(port)?;
        Self::greet(connection, port, Some(Arc::new(way)), database, resp3)
    }

    fn greet(connection: Connection, port: u16, way: Option<Arc<Way>>, database: u32, resp3: bool) -> Option<Self> {
        let mut link = Self { connection, port, database, id: 0, way, is_dead: false };
        if resp3 && !matches!(link.run("HELLO 3"), Reply::Map(_)) {
            return None;
        }
        if link.run(&format!("SELECT {database}")) != "OK" {
            return None;
        }
        match link.run("CLIENT ID") {
            Reply::Int(id) => link.id = id,
            _ => return None,
        }
        Some(link)
    }

    /// Takes it for this database: in a cluster, where there is one alone, each stands for a slot.
    pub fn standing_for(mut self, database: u32) -> Self {
        self.database = database;
        self
    }

    pub fn database(&self) -> u32 {
        self.database
    }

    /// Where it leads to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What CLIENT ID answers for this connection.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// What it goes through, if the network may be bad.
    pub fn way(&self) -> Option<&Arc<Way>> {
        self.way.as_ref()
    }

    /// Whether the network has disturbed it.
    pub fn is_disturbed(&self) -> bool {
        self.way.as_ref().is_some_and(|way| way.is_disturbed())
    }

    /// Sends lines but for so many bytes at the end.
    pub fn send_part(&mut self, lines: &[String], missing: usize) -> Option<Instant> {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| packed(&bytes_of(line))).collect();
        self.send_bytes(&bytes[..bytes.len().saturating_sub(missing)])
    }

    /// Sends lines, whose words have no spaces, in one write. Returns a moment before the first byte left, None when the
    /// connection is closed.
    pub fn send(&mut self, lines: &[impl AsRef<str>]) -> Option<Instant> {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| packed(&bytes_of(line.as_ref()))).collect();
        self.send_bytes(&bytes)
    }

    /// Sends one command whose words may be any bytes.
    pub fn send_words(&mut self, words: &[&[u8]]) -> Option<Instant> {
        self.send_bytes(&packed(words))
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> Option<Instant> {
        if self.is_dead {
            return None;
        }
        let sent = Instant::now();
        self.connection.send(bytes).ok()?;
        Some(sent)
    }

    /// A handle to send by, while another thread reads; None when there are too many.
    pub fn sender(&self) -> Option<Sender> {
        self.connection.sender().ok()
    }

    /// The next reply; None when none comes within `limit`, after which this connection is of no use.
    pub fn receive(&mut self, limit: Duration) -> Option<Reply> {
        if self.connection.set_timeout(limit).is_err() {
            return Some(Reply::Closed);
        }
        match self.connection.receive() {
            Err(error) if error.is_timeout() => {
                self.is_dead = true;
                None
            }
            result => Some(Reply::of(result)),
        }
    }

    /// The locks of this database that are waited for most.
    pub fn contended(&mut self) -> Vec<String> {
        let Reply::List(queues) = self.run("LOCK.QUEUES COUNT 20") else { return Vec::new() };
        queues.iter().map(|queue| queue.get("key").string()).collect()
    }

    /// Sends a line and waits for its reply, which is [`Reply::Closed`] also when none comes.
    pub fn run(&mut self, line: &str) -> Reply {
        match self.send(&[line]) {
            Some(_) => self.receive(CONNECTING).unwrap_or(Reply::Closed),
            None => Reply::Closed,
        }
    }
}
