//! One connection that sends raw commands and reads raw replies.

use std::time::Duration;

use redis::Value;

use super::connection::{Connection, packed};
use super::{PATIENCE, Reply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Resp2,
    Resp3,
}

/// A client of one server. It never re-sends and never reconnects by itself.
pub struct Client {
    connection: Connection,
    id: i64,
}

/// The arguments of a command line that has no spaces inside its words.
pub fn bytes_of(line: &str) -> Vec<&[u8]> {
    line.split_whitespace().map(str::as_bytes).collect()
}

impl Client {
    /// None when nobody listens there or the server refuses.
    pub fn connect(port: u16, protocol: Protocol) -> Option<Self> {
        let mut client = Self { connection: Connection::open(port, PATIENCE).ok()?, id: 0 };
        if protocol == Protocol::Resp3 && !matches!(client.run("HELLO 3"), Reply::Map(_)) {
            return None;
        }
        match client.run("CLIENT ID") {
            Reply::Int(id) => client.id = id,
            Reply::Closed => return None,
            // Loading, or an ACL that does not allow it: the id is not known.
            _ => {}
        }
        Some(client)
    }

    /// What CLIENT ID answers for this connection.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Sends a line whose words have no spaces and returns the reply.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> Reply {
        self.call(&bytes_of(line))
    }

    /// Sends any bytes as arguments and returns the reply.
    #[track_caller]
    pub fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Reply {
        match self.connection.send(&packed(args)) {
            Ok(()) => self.answer(),
            Err(error) => Reply::of(Err(error.into())),
        }
    }

    /// The next reply, messages that the server sends unasked left out.
    fn answer(&mut self) -> Reply {
        loop {
            match self.connection.receive() {
                Ok(Value::Push { .. }) => {}
                result => return Reply::of(result),
            }
        }
    }

    /// Runs a line that must answer OK.
    #[track_caller]
    pub fn ok(&mut self, line: &str) {
        assert_eq!(self.run(line), "OK", "{line}");
    }

    /// Sends without reading the reply.
    #[track_caller]
    pub fn send(&mut self, args: &[impl AsRef<[u8]>]) {
        self.connection.send(&packed(args)).expect("a connection that takes a command");
    }

    /// Sends several lines in one write, so that the server finds them together in its buffer.
    #[track_caller]
    pub fn send_together(&mut self, lines: &[impl AsRef<str>]) {
        let commands: Vec<Vec<&[u8]>> = lines.iter().map(|line| bytes_of(line.as_ref())).collect();
        self.send_all(commands.iter().map(Vec::as_slice));
    }

    /// Sends several commands in one write.
    #[track_caller]
    pub fn send_all<'a, W: AsRef<[u8]> + 'a>(&mut self, commands: impl Iterator<Item = &'a [W]>) {
        let bytes: Vec<u8> = commands.flat_map(packed).collect();
        self.connection.send(&bytes).expect("a connection that takes commands");
    }

    /// Reads one reply; [`Reply::Other`] when none comes within `timeout`, after which this connection is of no use.
    pub fn receive_within(&mut self, timeout: Duration) -> Reply {
        let set = self.connection.set_timeout(timeout);
        if set.is_err() {
            return Reply::Closed;
        }
        let reply = Reply::of(self.connection.receive());
        match self.connection.set_timeout(PATIENCE) {
            Ok(()) => reply,
            Err(_) => Reply::Closed,
        }
    }

    pub fn receive(&mut self) -> Reply {
        self.receive_within(PATIENCE)
    }

    #[track_caller]
    pub fn pttl(&mut self, key: &str) -> i64 {
        self.run(&format!("PTTL {key}")).int()
    }

    /// The end of the lease in Unix milliseconds, -1 for none, -2 for no key.
    #[track_caller]
    pub fn expires_at(&mut self, key: &str) -> i64 {
        self.run(&format!("PEXPIRETIME {key}")).int()
    }

    /// One field of INFO; None when it has no such field.
    #[track_caller]
    pub fn info(&mut self, section: &str, name: &str) -> Option<String> {
        let text = self.run(&format!("INFO {section}")).string();
        let prefix = format!("{name}:");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).map(|value| value.trim_end().to_owned())
    }
}
