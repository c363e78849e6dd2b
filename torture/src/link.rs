//! One connection, and when what was sent and received on it.

use std::time::{Duration, Instant};

use redis::{Connection, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
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
        let version = if resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let settings =
            RedisConnectionInfo::default().set_protocol(version).set_db(i64::from(database)).set_skip_set_lib_name();
        let info = ("127.0.0.1", port).into_connection_info().ok()?.set_redis_settings(settings);
        let connection = redis::Client::open(info).ok()?.get_connection_with_timeout(CONNECTING).ok()?;
        let mut link = Self { connection, id: 0 };
        link.send(&["CLIENT ID"])?;
        match link.receive(CONNECTING) {
            Some(Reply::Int(id)) => link.id = id,
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
        self.connection.send_packed_command(bytes).ok()?;
        Some(sent)
    }

    /// The next reply; None when none comes within `limit`, after which this connection is of no use.
    pub fn receive(&mut self, limit: Duration) -> Option<Reply> {
        // A socket takes no time-out of zero.
        let limit = limit.max(Duration::from_millis(1));
        if self.connection.set_read_timeout(Some(limit)).is_err() {
            return Some(Reply::Closed);
        }
        match self.connection.recv_response() {
            Err(error) if error.is_timeout() => None,
            result => Some(Reply::of(result)),
        }
    }

    /// Sends a line and waits for its reply, which is [`Reply::Closed`] also when none comes.
    pub fn run(&mut self, line: &str) -> Reply {
        match self.send(&[line]) {
            Some(_) => self.receive(CONNECTING).unwrap_or(Reply::Closed),
            None => Reply::Closed,
        }
    }
}

fn packed(words: &[&[u8]]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.get_packed_command()
}
