//! Redisson's RLock: a Hash changed by scripts, and a channel on which the release tells everybody who waits.
//!
//! Each client is a process of its own here, with a connection for its subscription.

use std::collections::VecDeque;
use std::time::Duration;

use super::scripts::{REDISSON_LOCK, REDISSON_UNLOCK, Script};
use super::subscription::Subscription;
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
            subscription: Subscription::new(channel(lock)),
            latch_prefix: latch(lock, ""),
            requests: Tokens::new(number),
            lease: lease.to_string(),
            // The process's UUID and the thread's number.
            owner: format!("6f4e3c1a-0d5b-4b7e-9a61-{number:012x}:1"),
            asked: VecDeque::new(),
        })
    }

    fn held_by_another(&self, lock: &str, until_ms: i64) -> Vec<String> {
        vec![format!("HSET {lock} somebody-else:1 1"), format!("PEXPIREAT {lock} {until_ms}")]
    }
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
    subscription: Subscription,
    latch_prefix: String,
    requests: Tokens,
    lease: String,
    owner: String,
    asked: VecDeque<Asked>,
}

impl Client {
    fn attempt(&mut self, wire: &mut Wire<'_>) {
        let (key, lease, owner) = (self.key.as_bytes(), self.lease.as_bytes(), self.owner.as_bytes());
        wire.ask(&[b"EVALSHA", self.lock.as_bytes(), b"1", key, lease, owner]);
        self.asked.push_back(Asked::Lock);
    }

    fn refused(&mut self, remaining_ms: i64, wire: &mut Wire<'_>) {
        // A lock without a lease is waited for until a message comes.
        let remaining = u64::try_from(remaining_ms).ok().map(Duration::from_millis);
        if self.subscription.refused(remaining, wire) {
            self.attempt(wire);
        }
    }
}

impl Party for Client {
    fn acquire(&mut self, wire: &mut Wire<'_>) {
        self.subscription.try_without();
        self.attempt(wire);
    }

    fn release(&mut self, wire: &mut Wire<'_>) {
        self.requests.draw();
        let latch = [self.latch_prefix.as_bytes(), self.requests.present()].concat();
        wire.ask(&[
            b"EVALSHA",
            self.unlock.as_bytes(),
            b"3",
            self.key.as_bytes(),
            self.subscription.channel(),
            &latch,
            UNLOCK_MESSAGE.as_bytes(),
            self.lease.as_bytes(),
            self.owner.as_bytes(),
            PUBLISH.as_bytes(),
            LATCH_MS.as_bytes(),
        ]);
        self.asked.push_back(Asked::Unlock { latch });
    }

    fn on_reply(&mut self, line: Line, reply: Reply, wire: &mut Wire<'_>) -> Progress {
        if line == Line::Channel {
            if self.subscription.heard(&reply, wire) {
                self.attempt(wire);
            }
            return Progress::Pending;
        }
        match (self.asked.pop_front(), reply) {
            (Some(Asked::Lock), Reply::Null) => {
                self.subscription.granted(wire);
                Progress::Granted
            }
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

    fn on_alarm(&mut self, wire: &mut Wire<'_>) {
        if self.subscription.woken() {
            self.attempt(wire);
        }
    }
}
