//! One connection of a client, whose requests and replies are a part of the history.

mod path;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::connection::{Connection, packed};
use support::{Reply, bytes_of};

use crate::evidence::since_now;
use crate::history::{Endpoint, History, Request, Requests};
pub use path::{Effect, NetworkPath};

/// How long the server may take to accept a connection and to answer short requests. Above the longest stall.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A connection with a database selected. It never connects again by itself.
pub struct Link {
    connection: Connection,
    requests: Requests,
    path: Option<NetworkPath>,
    /// A reply has not come in time: the next one would belong to another request.
    is_dead: bool,
}

impl Link {
    pub fn open(history: &Arc<History>, port: u16, database: u32, resp3: bool) -> Option<Self> {
        Self::bare(history, port, PATIENCE)?.greet(database, resp3)
    }

    /// A connection without a greeting, which is made within this time.
    pub fn bare(history: &Arc<History>, port: u16, within: Duration) -> Option<Self> {
        Some(Self::of(history, Connection::open(port, within).ok()?, port, None))
    }

    /// A connection, perhaps through a network that can be bad.
    pub fn of(history: &Arc<History>, connection: Connection, port: u16, path: Option<NetworkPath>) -> Self {
        let (number, is_direct) = (history.next_connection(), path.is_none());
        let endpoint = Endpoint { server: port, database: 0, connection: number, is_direct };
        Self { connection, requests: Requests::new(history, endpoint), path, is_dead: false }
    }

    pub fn greet(mut self, database: u32, resp3: bool) -> Option<Self> {
        if resp3 && !matches!(self.run("HELLO 3"), Reply::Map(_)) || self.run(&format!("SELECT {database}")) != "OK" {
            return None;
        }
        let Reply::Int(id) = self.run("CLIENT ID") else { return None };
        self.requests.endpoint.connection = id;
        Some(self.for_database(database))
    }

    /// Takes it for this database: in a cluster, which has one database alone, each stands for a slot.
    pub fn for_database(mut self, database: u32) -> Self {
        self.requests.endpoint.database = database;
        self
    }

    pub fn database(&self) -> u32 {
        self.requests.endpoint.database
    }

    pub fn port(&self) -> u16 {
        self.requests.endpoint.server
    }

    pub fn id(&self) -> i64 {
        self.requests.endpoint.connection
    }

    pub fn path(&self) -> Option<&NetworkPath> {
        self.path.as_ref()
    }

    /// Sends lines, whose words have no spaces, in one write. Returns a moment before the first byte left, `None` if
    /// the connection is closed.
    pub fn send(&mut self, lines: &[impl AsRef<str>]) -> Option<Instant> {
        self.send_part(lines, 0)
    }

    /// The same without the last `missing` bytes, so that the last line is not carried out.
    pub fn send_part(&mut self, lines: &[impl AsRef<str>], missing: usize) -> Option<Instant> {
        (!self.is_dead).then_some(())?;
        let sent = self.note(&lines[..lines.len() - usize::from(missing > 0)]);
        let bytes: Vec<u8> = lines.iter().flat_map(|line| packed(&bytes_of(line.as_ref()))).collect();
        self.connection.send(&bytes[..bytes.len() - missing]).ok()?;
        Some(sent)
    }

    /// Sends one command whose words may be any bytes, and returns its reply.
    pub fn call(&mut self, words: &[&[u8]]) -> Reply {
        self.note(&[String::from_utf8_lossy(words[0])]);
        let sent = self.connection.send(&packed(words));
        sent.ok().and_then(|()| self.receive(PATIENCE)).unwrap_or(Reply::Closed)
    }

    fn note(&mut self, lines: &[impl AsRef<str>]) -> Instant {
        let since = since_now();
        self.requests.sent(lines.iter().map(AsRef::as_ref), since);
        since.0
    }

    pub fn oldest(&self) -> Option<Request> {
        self.requests.oldest().cloned()
    }

    /// Returns the next reply; `None` if none comes within `limit`, after which this connection is of no use.
    pub fn receive(&mut self, limit: Duration) -> Option<Reply> {
        let next = self.poll(limit);
        if next.is_none() {
            self.is_dead = true;
            self.check_late();
        }
        next.map(|(_, reply)| reply)
    }

    /// Returns the next reply, or message of the server, with the request that it belongs to; `None` if none comes
    /// within `limit`.
    pub fn poll(&mut self, limit: Duration) -> Option<(Option<Request>, Reply)> {
        if self.connection.set_timeout(limit).is_err() {
            return Some((None, Reply::Closed));
        }
        match self.connection.receive() {
            Err(error) if error.is_timeout() => None,
            result => Some(self.requests.answered(Reply::of(result))),
        }
    }

    pub fn check_late(&self) {
        self.requests.check_late();
    }

    /// Sends a line and waits for its reply, which is [`Reply::Closed`] also when none comes.
    pub fn run(&mut self, line: &str) -> Reply {
        self.send(&[line]).and_then(|_| self.receive(PATIENCE)).unwrap_or(Reply::Closed)
    }

    pub fn contended(&mut self) -> Vec<String> {
        let Reply::List(queues) = self.run("LOCK.QUEUES COUNT 20") else { return Vec::new() };
        queues.iter().map(|queue| queue.get("key").string()).collect()
    }

    pub fn info(&mut self, section: &str, name: &str) -> Option<String> {
        let Reply::Text(text) = self.run(&format!("INFO {section}")) else { return None };
        let text = String::from_utf8_lossy(&text);
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::to_owned)
    }

    pub fn number(&mut self, section: &str, name: &str) -> Option<i64> {
        self.info(section, name)?.parse().ok()
    }

    pub fn has_waiters(&mut self, lock: &str, count: i64) -> bool {
        let info = self.run(&format!("LOCK.INFO {lock}"));
        matches!(info, Reply::List(_)) && info.get("waiters") == count
    }
}
