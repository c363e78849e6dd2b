//! python-redis-lock: SET NX, and a list on which the release pushes a signal for one of those blocked in BLPOP.

use std::collections::VecDeque;

use super::scripts::{PYTHON_REDIS_LOCK_UNLOCK, Script};
use super::token::Tokens;
use super::{Lease, Party, Progress, Protocol, unexpected};
use crate::engine::{Line, Reply, Wire};

/// How long the signal is kept, in milliseconds: the package's default.
const SIGNAL_EXPIRE: &[u8] = b"1000";

pub struct SignalList;

impl Protocol for SignalList {
    fn name(&self) -> &'static str {
        "SET NX + BLPOP (python-redis-lock)"
    }

    fn can_be_sent_ahead(&self) -> bool {
        false
    }

    fn scripts(&self) -> &'static [Script] {
        &[PYTHON_REDIS_LOCK_UNLOCK]
    }

    fn party(&self, number: usize, lock: &str, lease: Lease) -> Box<dyn Party> {
        Box::new(Client {
            unlock: PYTHON_REDIS_LOCK_UNLOCK.sha1(),
            key: key_of(lock),
            signal: format!("lock-signal:{lock}"),
            // The package counts whole seconds, and waits as long as it would hold.
            lease_s: lease.div_ceil(1000).to_string(),
            tokens: Tokens::new(number),
            asked: VecDeque::new(),
        })
    }

    fn held_by_another(&self, lock: &str, until_ms: i64) -> Vec<String> {
        vec![format!("SET {} somebody-else PXAT {until_ms}", key_of(lock))]
    }
}

fn key_of(lock: &str) -> String {
    format!("lock:{lock}")
}

/// What a reply is the answer to.
enum Asked {
    Owner,
    Set,
    Signal,
    Unlock,
}

struct Client {
    unlock: String,
    key: String,
    signal: String,
    lease_s: String,
    tokens: Tokens,
    asked: VecDeque<Asked>,
}

impl Client {
    fn attempt(&mut self, wire: &mut Wire<'_>) {
        wire.ask(&[b"SET", self.key.as_bytes(), self.tokens.present(), b"EX", self.lease_s.as_bytes(), b"NX"]);
        self.asked.push_back(Asked::Set);
    }

    fn wait(&mut self, wire: &mut Wire<'_>) {
        wire.ask(&[b"BLPOP", self.signal.as_bytes(), self.lease_s.as_bytes()]);
        self.asked.push_back(Asked::Signal);
    }
}

impl Party for Client {
    /// First it looks whether it is the owner already.
    fn acquire(&mut self, wire: &mut Wire<'_>) {
        self.tokens.draw();
        wire.ask(&[b"GET", self.key.as_bytes()]);
        self.asked.push_back(Asked::Owner);
    }

    fn release(&mut self, wire: &mut Wire<'_>) {
        let (key, signal, token) = (self.key.as_bytes(), self.signal.as_bytes(), self.tokens.present());
        wire.ask(&[b"EVALSHA", self.unlock.as_bytes(), b"2", key, signal, token, SIGNAL_EXPIRE]);
        self.asked.push_back(Asked::Unlock);
    }

    fn on_reply(&mut self, _line: Line, reply: Reply, wire: &mut Wire<'_>) -> Progress {
        match (self.asked.pop_front(), reply) {
            (Some(Asked::Owner | Asked::Signal), Reply::BulkString(_) | Reply::Array(_) | Reply::Null) => {
                self.attempt(wire);
                Progress::Pending
            }
            (Some(Asked::Set), Reply::SimpleString(_)) => Progress::Granted,
            (Some(Asked::Set), Reply::Null) => {
                self.wait(wire);
                Progress::Pending
            }
            (Some(Asked::Unlock), Reply::Integer(0)) => Progress::Released,
            (_, reply) => unexpected(&reply),
        }
    }
}
