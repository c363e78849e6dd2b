//! SET NX PX, tried again and again while somebody else holds the lock; and what its release costs done in other ways.

use std::collections::VecDeque;
use std::time::Duration;

use super::scripts::{REDIS_PY_RELEASE, Script};
use super::token::Tokens;
use super::{Lease, Party, Progress, Protocol, Step, unexpected};
use crate::engine::{Line, Reply, Wire};

pub struct SetNx {
    name: &'static str,
    release: Release,
    /// Between two tries; None for locks that nobody else is after.
    pause: Option<Duration>,
}

#[derive(Clone, Copy)]
enum Release {
    /// redis-py's script.
    Script,
    /// Without a look at the token: not safe, but the least there is.
    Del,
    /// Of Valkey 9.
    DelIfEq,
}

impl SetNx {
    /// redis-py's defaults.
    pub const POLL_100_MS: Self = Self {
        name: "SET NX, poll 100 ms (redis-py)",
        release: Release::Script,
        pause: Some(Duration::from_millis(100)),
    };
    /// The classic recipe.
    pub const POLL_1_MS: Self =
        Self { name: "SET NX, poll 1 ms", release: Release::Script, pause: Some(Duration::from_millis(1)) };
    pub const WITH_SCRIPT: Self = Self { name: "SET NX + EVALSHA (redis-py)", release: Release::Script, pause: None };
    pub const WITH_DEL: Self = Self { name: "SET NX + DEL", release: Release::Del, pause: None };
    pub const WITH_DELIFEQ: Self = Self { name: "SET NX + DELIFEQ", release: Release::DelIfEq, pause: None };

    /// Whether the server has DELIFEQ.
    pub fn delifeq_is_known(client: &mut support::Client) -> bool {
        client.run("COMMAND INFO DELIFEQ").items().iter().any(|entry| *entry != support::Reply::Nil)
    }
}

impl Protocol for SetNx {
    fn name(&self) -> &'static str {
        self.name
    }

    fn scripts(&self) -> &'static [Script] {
        &[REDIS_PY_RELEASE]
    }

    fn party(&self, number: usize, lock: &str, lease: Lease) -> Box<dyn Party> {
        Box::new(Client {
            release: self.release,
            script: REDIS_PY_RELEASE.sha1(),
            pause: self.pause,
            key: lock.to_owned(),
            lease: lease.to_string(),
            tokens: Tokens::new(number),
            asked: VecDeque::new(),
        })
    }
}

struct Client {
    release: Release,
    /// The name of redis-py's script for EVALSHA.
    script: String,
    pause: Option<Duration>,
    key: String,
    lease: String,
    tokens: Tokens,
    asked: VecDeque<Step>,
}

impl Client {
    fn attempt(&mut self, wire: &mut Wire<'_>) {
        wire.ask(&[b"SET", self.key.as_bytes(), self.tokens.present(), b"NX", b"PX", self.lease.as_bytes()]);
        self.asked.push_back(Step::Acquire);
    }
}

impl Party for Client {
    fn acquire(&mut self, wire: &mut Wire<'_>) {
        self.tokens.draw();
        self.attempt(wire);
    }

    fn release(&mut self, wire: &mut Wire<'_>) {
        let (key, token) = (self.key.as_bytes(), self.tokens.present());
        match self.release {
            Release::Script => wire.ask(&[b"EVALSHA", self.script.as_bytes(), b"1", key, token]),
            Release::Del => wire.ask(&[b"DEL", key]),
            Release::DelIfEq => wire.ask(&[b"DELIFEQ", key, token]),
        }
        self.asked.push_back(Step::Release);
    }

    fn on_reply(&mut self, _line: Line, reply: Reply, wire: &mut Wire<'_>) -> Progress {
        match (self.asked.pop_front(), reply) {
            (Some(Step::Acquire), Reply::SimpleString(_)) => Progress::Granted,
            (Some(Step::Acquire), Reply::Null) => {
                wire.wake_after(self.pause.expect("a lock that nobody else is after is free"));
                Progress::Pending
            }
            (Some(Step::Release), Reply::Integer(1)) => Progress::Released,
            (_, reply) => unexpected(&reply),
        }
    }

    fn on_alarm(&mut self, wire: &mut Wire<'_>) {
        self.attempt(wire);
    }
}
