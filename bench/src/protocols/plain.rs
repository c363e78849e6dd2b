//! Protocols in which one command acquires a lock and one releases it. This module's, and SET NX.

use std::io::Write as _;
use std::time::Duration;

use support::connection::packed;
use tokio::time::sleep;

use super::{scripts, unexpected};
use crate::connection::{Connection, Reply, bytes, integer};

/// Command lines, in which `{key}` is the lock, `{token}` a new token for each acquisition and `{client}` the client's number.
#[derive(Clone, Copy)]
pub struct Plain {
    pub name: &'static str,
    /// Sent by each new client.
    connect: Option<&'static str>,
    pub acquire: &'static str,
    pub release: &'static str,
    /// The reply to the release of a lock that the client held.
    released: i64,
    /// The time between two attempts.
    poll: Duration,
}

const BASE: Plain = Plain { name: "", connect: None, acquire: "", release: "", released: 1, poll: Duration::ZERO };
const OURS: Plain = Plain { release: "LOCK.RELEASE {key} {token}", released: 0, ..BASE };
const SET_NX: Plain =
    Plain { acquire: "SET {key} {token} NX PX 30000", poll: Duration::from_millis(1), released: 1, ..BASE };

/// The shares of [`PERMIT_BLOCK`].
pub const PERMITS: usize = 10;

pub const LOCK: Plain = Plain { name: "LOCK.ACQUIRE", acquire: "LOCK.ACQUIRE {key} {token} PX 30000", ..OURS };
pub const LOCK_BLOCK: Plain =
    Plain { name: "LOCK.ACQUIRE BLOCK", acquire: "LOCK.ACQUIRE {key} {token} PX 30000 BLOCK 0", ..OURS };
pub const LOCK_NOTIFY: Plain = Plain {
    name: "LOCK.ACQUIRE NOTIFY",
    connect: Some("SSUBSCRIBE grants:{client}"),
    acquire: "LOCK.ACQUIRE {key} {token} PX 30000 BLOCK 0 NOTIFY grants:{client}",
    ..OURS
};
pub const PERMIT_BLOCK: Plain =
    Plain { name: "LOCK.SHARE LIMIT 10 BLOCK", acquire: "LOCK.SHARE {key} {token} PX 30000 LIMIT 10 BLOCK 0", ..OURS };
pub const REENTER: Plain = Plain {
    name: "LOCK.REENTER",
    acquire: "LOCK.REENTER {key} {client} PX 30000",
    release: "LOCK.RELEASE {key} {client}",
    ..OURS
};
/// The release that checks nothing.
pub const SET_NX_DEL: Plain = Plain { name: "SET NX + DEL", release: "DEL {key}", ..SET_NX };
pub const SET_NX_POLL: Plain = Plain { name: "SET NX, poll 1 ms", release: BY_SCRIPT, ..SET_NX };
/// As redis-py does it, with its pause.
pub const SET_NX_SCRIPT: Plain = Plain {
    name: "SET NX + EVALSHA, poll 100 ms (redis-py)",
    release: BY_SCRIPT,
    poll: Duration::from_millis(100),
    ..SET_NX
};
/// Of Redis 8.4 and later.
pub const SET_NX_DELEX: Plain =
    Plain { name: "SET NX + DELEX, poll 1 ms", release: "DELEX {key} IFEQ {token}", ..SET_NX };
/// Of Valkey 9.0 and later.
pub const SET_NX_DELIFEQ: Plain =
    Plain { name: "SET NX + DELIFEQ, poll 1 ms", release: "DELIFEQ {key} {token}", ..SET_NX };
/// Two round trips without a lock.
pub const PING: Plain = Plain { name: "PING", acquire: "PING", release: "PING", ..BASE };

const BY_SCRIPT: &str = "EVALSHA {redis-py-release} 1 {key} {token}";
/// As long as the tokens of redis-py.
const TOKEN: usize = 32;

pub struct Client {
    plain: Plain,
    connection: Connection,
    number: usize,
    /// The lock that the commands are for.
    key: String,
    acquire: Command,
    release: Command,
    token: [u8; TOKEN],
    drawn: u64,
    /// Commands to be sent together.
    outgoing: Vec<u8>,
}

/// A packed command, in which the token can be replaced.
#[derive(Default)]
struct Command {
    bytes: Vec<u8>,
    token_at: Option<usize>,
}

impl Command {
    fn new(line: &str, key: &str, client: usize) -> Self {
        let blank = "\0".repeat(TOKEN);
        let line = scripts::filled(line).replace("{client}", &client.to_string()).replace("{token}", &blank);
        let words: Vec<String> = line.split(' ').map(|word| word.replace("{key}", key)).collect();
        let bytes = packed(&words);
        let token_at = bytes.windows(TOKEN).position(|window| window == blank.as_bytes());
        Self { bytes, token_at }
    }

    fn append_to(&mut self, outgoing: &mut Vec<u8>, token: &[u8; TOKEN]) {
        if let Some(at) = self.token_at {
            self.bytes[at..at + TOKEN].copy_from_slice(token);
        }
        outgoing.extend_from_slice(&self.bytes);
    }
}

impl Client {
    pub(super) async fn connect(plain: Plain, port: u16, number: usize) -> Self {
        let mut connection = Connection::open(port).await;
        if let Some(line) = plain.connect {
            connection.call(&line.replace("{client}", &number.to_string())).await;
        }
        let (acquire, release) = (Command::default(), Command::default());
        let (token, outgoing) = ([b'0'; TOKEN], Vec::new());
        Self { plain, connection, number, key: String::new(), acquire, release, token, drawn: 0, outgoing }
    }

    fn is_for(&mut self, key: &str) {
        if self.key != key {
            key.clone_into(&mut self.key);
            self.acquire = Command::new(self.plain.acquire, key, self.number);
            self.release = Command::new(self.plain.release, key, self.number);
        }
    }

    fn add_acquire(&mut self) {
        self.drawn += 1;
        write!(self.token.as_mut_slice(), "{:016x}{:016x}", self.number, self.drawn).expect("two numbers fill a token");
        self.acquire.append_to(&mut self.outgoing, &self.token);
    }

    fn add_release(&mut self) {
        self.release.append_to(&mut self.outgoing, &self.token);
    }

    async fn send(&mut self) {
        self.connection.send(&self.outgoing).await;
        self.outgoing.clear();
    }

    pub async fn acquire(&mut self, key: &str) {
        self.is_for(key);
        self.add_acquire();
        self.send().await;
        self.wait_until_granted().await;
    }

    /// Releases the lock and asks for it again, in one write.
    pub async fn release_and_acquire(&mut self) {
        self.add_release();
        self.add_acquire();
        self.send().await;
        self.wait_until_released().await;
        self.wait_until_granted().await;
    }

    pub async fn release(&mut self, key: &str) {
        self.is_for(key);
        self.add_release();
        self.send().await;
        self.wait_until_released().await;
    }

    /// Acquires and releases a free lock that number of times, all in one write.
    pub async fn cycles(&mut self, key: &str, count: usize) {
        self.is_for(key);
        for _ in 0..count {
            self.add_acquire();
            self.add_release();
        }
        self.send().await;
        for _ in 0..count {
            self.wait_until_granted().await;
            self.wait_until_released().await;
        }
    }

    async fn wait_until_granted(&mut self) {
        // A message may come before the reply to the request.
        let (mut is_waiting, mut is_granted) = (false, false);
        loop {
            match self.connection.receive().await {
                Reply::Number { .. } => return,
                Reply::SimpleString { data, .. } if data == b"WAITING" => is_waiting = true,
                Reply::SimpleString { .. } => return,
                Reply::Push { data, .. } => is_granted = self.is_granted_by(&data),
                Reply::Null => {
                    sleep(self.plain.poll).await;
                    self.acquire.append_to(&mut self.outgoing, &self.token);
                    self.send().await;
                }
                reply => unexpected(&reply),
            }
            if is_waiting && is_granted {
                return;
            }
        }
    }

    /// Whether a message says `granted <lease end> <db> <token> <key>`.
    fn is_granted_by(&self, message: &[Reply]) -> bool {
        let text = message.last().map(bytes).unwrap_or_default();
        let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
        words.first() == Some(&b"granted".as_slice()) && words.get(3) == Some(&self.token.as_slice())
    }

    async fn wait_until_released(&mut self) {
        let reply = self.connection.receive().await;
        let done = integer(&reply) == Some(self.plain.released) || bytes(&reply) == b"PONG";
        assert!(done, "{}: the reply to a release is {reply:?}", self.plain.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_of_a_command_can_be_replaced() {
        let mut command = Command::new("LOCK.RELEASE {key} {token}", "door", 1);
        let mut outgoing = Vec::new();
        command.append_to(&mut outgoing, &[b'a'; TOKEN]);
        command.append_to(&mut outgoing, &[b'b'; TOKEN]);
        let expected = ["a", "b"].map(|letter| packed(&["LOCK.RELEASE", "door", &letter.repeat(TOKEN)]));
        assert_eq!(outgoing, expected.concat());
    }
}
