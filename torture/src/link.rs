//! One connection, and when what was sent and received on it.

use std::time::{Duration, Instant};

use support::connection::{Connection, Sender, packed};
use support::{Reply, bytes_of};

/// How long a connection may take to be made, above the longest stall.
const CONNECTING: Duration = Duration::from_secs(10);

/// A connection with a database selected. It never connects again by itself.
pub struct Link {
    connection: Connection,
    id: i64,
}

impl Link {
    /// None when the server closes the connection on the way, or does not listen.
    pub fn open(port: u16, database: u32, resp3: bool) -> Option<Self> {
        let mut link = Self { connection: Connection::open(port, CONNECTING).ok()?, id: 0 };
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

    /// What CLIENT ID answers for this connection.
    pub fn id(&self) -> i64 {
        self.id
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
            Err(error) if error.is_timeout() => None,
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
