//! This module's own commands. Who waits is answered when it has the lock.

use std::collections::VecDeque;

use super::token::Tokens;
use super::{Lease, Party, Progress, Protocol, Step, unexpected};
use crate::engine::{Line, Reply, Wire};

pub struct Native {
    name: &'static str,
    command: &'static str,
    kind: Kind,
    /// Where the lock is held.
    waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Reentrant,
}

impl Native {
    pub const MUTEX: Self =
        Self { name: "LOCK.ACQUIRE BLOCK", command: "LOCK.ACQUIRE", kind: Kind::Mutex, waits: true };
    /// As SET NX, which does not wait either.
    pub const FREE_MUTEX: Self = Self { name: "LOCK.ACQUIRE", waits: false, ..Self::MUTEX };
    pub const FREE_REENTRANT: Self =
        Self { name: "LOCK.REENTER", command: "LOCK.REENTER", kind: Kind::Reentrant, waits: false };
}

impl Protocol for Native {
    fn name(&self) -> &'static str {
        self.name
    }

    fn party(&self, number: usize, lock: &str, lease: Lease) -> Box<dyn Party> {
        Box::new(Client {
            command: self.command.as_bytes(),
            kind: self.kind,
            waits: self.waits,
            key: lock.to_owned(),
            lease: lease.to_string(),
            tokens: Tokens::new(number),
            asked: VecDeque::new(),
        })
    }
}

struct Client {
    command: &'static [u8],
    kind: Kind,
    waits: bool,
    key: String,
    lease: String,
    tokens: Tokens,
    asked: VecDeque<Step>,
}

impl Party for Client {
    fn acquire(&mut self, wire: &mut Wire) {
        // An owner stays the same, a token is new for each acquisition.
        if self.kind == Kind::Mutex {
            self.tokens.draw();
        }
        let (key, lease) = (self.key.as_bytes(), self.lease.as_bytes());
        let words: [&[u8]; 7] = [self.command, key, self.tokens.present(), b"PX", lease, b"BLOCK", b"0"];
        wire.ask(if self.waits { &words } else { &words[..5] });
        self.asked.push_back(Step::Acquire);
    }

    fn release(&mut self, wire: &mut Wire) {
        wire.ask(&[b"LOCK.RELEASE", self.key.as_bytes(), self.tokens.present()]);
        self.asked.push_back(Step::Release);
    }

    fn on_reply(&mut self, _line: Line, reply: Reply, _wire: &mut Wire) -> Progress {
        match (self.asked.pop_front(), reply) {
            (Some(Step::Acquire), Reply::Integer(1)) => Progress::Granted,
            (Some(Step::Release), Reply::Integer(0)) => Progress::Released,
            (_, reply) => unexpected(&reply),
        }
    }
}
