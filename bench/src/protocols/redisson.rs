//! Redisson's RLock: a Hash changed by scripts, and a channel on which the release tells everybody who waits.
//!
//! Each client is a process of its own here, with a connection for its subscription.

use std::collections::VecDeque;
use std::time::Duration;

use super::scripts::{REDISSON_LOCK, REDISSON_UNLOCK, Script};
use super::token::Tokens;
use super::{Lease, Party, Progress, Protocol, unexpected};
use crate::engine::{Line, Reply, Wire};

/// `LockPubSub.UNLOCK_MESSAGE`.
pub const UNLOCK_MESSAGE: &str = "0";

/// How long an unlock remembers that it was done, in milliseconds: 4 attempts, each 3000 ms and a pause whose mean is
/// 1500 ms (Redisson's defaults for retryAttempts, timeout and retryDelay).
pub const LATCH_MS: &str = "18000";

/// What a release is told with, as long as the server is no cluster.
pub const PUBLISH: &str = "PUBLISH";

/// On which the release of a lock is told.
pub fn channel(lock: &str) -> String {
    format!("redisson_lock__channel:{{{lock}}}")
}

/// The key by which an unlock that is sent twice is done once.
pub fn latch(lock: &str, request: &str) -> String {
    format!("redisson_unlock_latch:{{{lock}}}:{request}")
}

pub struct Redisson;

impl Protocol for Redisson {
    fn name(&self) -> &'static str {
        "Lua hash + pub/sub (Redisson)"
    }

    fn scripts(&self) -> &'static [Script] {
        &[REDISSON_LOCK, REDISSON_UNLOCK]
    }

    fn lines(&self) -> usize {
        2
    }

    fn party(&self, number: usize, lock: &str, lease: Lease) -> Box<dyn Party> {
        Box::new(Client {
            lock: REDISSON_LOCK.sha1(),
            unlock: REDISSON_UNLOCK.sha1(),
            key: lock.to_owned(),
            channel: channel(lock),
            latch_prefix: latch(lock, ""),
            requests: Tokens::new(number),
            lease: lease.to_string(),
            // The process's UUID and the thread's number.
            owner: format!("6f4e3c1a-0d5b-4b7e-9a61-{number:012x}:1"),
            stage: Stage::Idle,
            asked: VecDeque::new(),
        })
    }

    fn held_by_another(&self, lock: &str, until_ms: i64) -> Vec<String> {
        vec![format!("HSET {lock} somebody-else:1 1"), format!("PEXPIREAT {lock} {until_ms}")]
    }
}

/// Where a client stands on its way to the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Tries without a subscription.
    Trying,
    Subscribing,
    /// Tries with a subscription; so many messages have come meanwhile.
    Retrying {
        messages: u32,
    },
    /// Waits for a message, or for the end of the lease.
    Waiting,
}

/// What a reply on the main line is the answer to.
enum Asked {
    Lock,
    /// With the key by which an unlock that is sent twice is done once.
    Unlock {
        latch: Vec<u8>,
    },
    /// Its removal. Nobody waits for it.
    Latch,
}

struct Client {
    lock: String,
    unlock: String,
    key: String,
    channel: String,
    latch_prefix: String,
    requests: Tokens,
    lease: String,
    owner: String,
    stage: Stage,
    asked: VecDeque<Asked>,
}

impl Client {
    fn attempt(&mut self, wire: &mut Wire) {
        let (key, lease, owner) = (self.key.as_bytes(), self.lease.as_bytes(), self.owner.as_bytes());
        wire.ask(&[b"EVALSHA", self.lock.as_bytes(), b"1", key, lease, owner]);
        self.asked.push_back(Asked::Lock);
    }

    fn retry(&mut self, messages: u32, wire: &mut Wire) {
        self.stage = Stage::Retrying { messages };
        self.attempt(wire);
    }

    fn locked(&mut self, wire: &mut Wire) -> Progress {
        if matches!(self.stage, Stage::Retrying { .. }) {
            wire.tell_on(Line::Channel, &[b"UNSUBSCRIBE", self.channel.as_bytes()]);
        }
        self.stage = Stage::Idle;
        Progress::Granted
    }

    fn refused(&mut self, remaining_ms: i64, wire: &mut Wire) {
        match self.stage {
            Stage::Retrying { messages: 0 } => {
                self.stage = Stage::Waiting;
                // A lock without a lease is waited for until a message comes.
                if let Ok(remaining_ms) = u64::try_from(remaining_ms) {
                    wire.wake_after(Duration::from_millis(remaining_ms));
                }
            }
            Stage::Retrying { messages } => self.retry(messages - 1, wire),
            _ => {
                self.stage = Stage::Subscribing;
                wire.ask_on(Line::Channel, &[b"SUBSCRIBE", self.channel.as_bytes()]);
            }
        }
    }

    fn on_channel(&mut self, kind: &[u8], wire: &mut Wire) {
        match (kind, self.stage) {
            (b"subscribe", Stage::Subscribing) => self.retry(0, wire),
            (b"message", Stage::Waiting) => {
                wire.cancel_alarm();
                self.retry(0, wire);
            }
            (b"message", Stage::Retrying { messages }) => self.stage = Stage::Retrying { messages: messages + 1 },
            // Of a subscription that is over.
            _ => {}
        }
    }
}

impl Party for Client {
    fn acquire(&mut self, wire: &mut Wire) {
        self.stage = Stage::Trying;
        self.attempt(wire);
    }

    fn release(&mut self, wire: &mut Wire) {
        self.requests.draw();
        let latch = [self.latch_prefix.as_bytes(), self.requests.present()].concat();
        wire.ask(&[
            b"EVALSHA",
            self.unlock.as_bytes(),
            b"3",
            self.key.as_bytes(),
            self.channel.as_bytes(),
            &latch,
            UNLOCK_MESSAGE.as_bytes(),
            self.lease.as_bytes(),
            self.owner.as_bytes(),
            PUBLISH.as_bytes(),
            LATCH_MS.as_bytes(),
        ]);
        self.asked.push_back(Asked::Unlock { latch });
    }

    fn on_reply(&mut self, line: Line, reply: Reply, wire: &mut Wire) -> Progress {
        if line == Line::Channel {
            match reply {
                Reply::Array(items) => match items.first() {
                    Some(Reply::BulkString(kind)) => self.on_channel(kind, wire),
                    _ => panic!("a message without a kind"),
                },
                reply => unexpected(&reply),
            }
            return Progress::Pending;
        }
        match (self.asked.pop_front(), reply) {
            (Some(Asked::Lock), Reply::Null) => self.locked(wire),
            (Some(Asked::Lock), Reply::Integer(remaining_ms)) => {
                self.refused(remaining_ms, wire);
                Progress::Pending
            }
            (Some(Asked::Unlock { latch }), Reply::Integer(1)) => {
                wire.tell_on(Line::Main, &[b"DEL", &latch]);
                self.asked.push_back(Asked::Latch);
                Progress::Released
            }
            (Some(Asked::Latch), Reply::Integer(_)) => Progress::Pending,
            (_, reply) => unexpected(&reply),
        }
    }

    fn on_alarm(&mut self, wire: &mut Wire) {
        if self.stage == Stage::Waiting {
            self.retry(0, wire);
        }
    }
}
