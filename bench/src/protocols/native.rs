//! This module's own commands. Who waits is answered when it has the lock.

use std::collections::VecDeque;

use super::token::Tokens;
use super::{Lease, Party, Progress, Protocol, Step, unexpected};
use crate::engine::{Line, Reply, Wire};

pub struct Native {
    name: &'static str,
    command: &'static str,
    kind: Kind,
    /// The words behind the lease, [`MOST_OPTIONS`] at most.
    options: &'static [&'static [u8]],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Reentrant,
    Shared,
}

/// Waits where the lock is held.
const BLOCK: &[&[u8]] = &[b"BLOCK", b"0"];
/// The same, for one of [`PERMITS`].
const BLOCK_WITH_LIMIT: &[&[u8]] = &[b"BLOCK", b"0", b"LIMIT", b"10"];
const MOST_OPTIONS: usize = 4;
/// Those of [`Native::PERMIT`].
pub const PERMITS: usize = 10;

impl Native {
    pub const MUTEX: Self =
        Self { name: "LOCK.ACQUIRE BLOCK", command: "LOCK.ACQUIRE", kind: Kind::Mutex, options: BLOCK };
    /// As SET NX, which does not wait either.
    pub const FREE_MUTEX: Self = Self { name: "LOCK.ACQUIRE", options: &[], ..Self::MUTEX };
    pub const FREE_REENTRANT: Self =
        Self { name: "LOCK.REENTER", command: "LOCK.REENTER", kind: Kind::Reentrant, options: &[] };
    /// A reader.
    pub const SHARE: Self =
        Self { name: "LOCK.SHARE BLOCK", command: "LOCK.SHARE", kind: Kind::Shared, options: BLOCK };
    /// A permit of a semaphore.
    pub const PERMIT: Self = Self { name: "LOCK.SHARE LIMIT BLOCK", options: BLOCK_WITH_LIMIT, ..Self::SHARE };
}

impl Protocol for Native {
    fn name(&self) -> &'static str {
        self.name
    }

    fn party(&self, number: usize, lock: &str, lease: Lease) -> Box<dyn Party> {
        Box::new(Client {
            command: self.command.as_bytes(),
            kind: self.kind,
            options: self.options,
            key: lock.to_owned(),
            lease: lease.to_string(),
            tokens: Tokens::new(number),
            asked: VecDeque::new(),
        })
    }
}

/// The words of a request before its options.
const FIRST: usize = 5;

struct Client {
    command: &'static [u8],
    kind: Kind,
    options: &'static [&'static [u8]],
    key: String,
    lease: String,
    tokens: Tokens,
    asked: VecDeque<Step>,
}

impl Party for Client {
    fn acquire(&mut self, wire: &mut Wire<'_>) {
        // An owner stays the same, a token is new for each acquisition.
        if self.kind != Kind::Reentrant {
            self.tokens.draw();
        }
        let (key, lease) = (self.key.as_bytes(), self.lease.as_bytes());
        let mut words: [&[u8]; FIRST + MOST_OPTIONS] = [b""; FIRST + MOST_OPTIONS];
        let length = FIRST + self.options.len();
        words[..FIRST].copy_from_slice(&[self.command, key, self.tokens.present(), b"PX", lease]);
        words[FIRST..length].copy_from_slice(self.options);
        wire.ask(&words[..length]);
        self.asked.push_back(Step::Acquire);
    }

    fn release(&mut self, wire: &mut Wire<'_>) {
        wire.ask(&[b"LOCK.RELEASE", self.key.as_bytes(), self.tokens.present()]);
        self.asked.push_back(Step::Release);
    }

    fn on_reply(&mut self, _line: Line, reply: Reply, _wire: &mut Wire<'_>) -> Progress {
        match (self.asked.pop_front(), reply) {
            (Some(Step::Acquire), Reply::Integer(1)) => Progress::Granted,
            (Some(Step::Release), Reply::Integer(0)) => Progress::Released,
            (_, reply) => unexpected(&reply),
        }
    }
}
