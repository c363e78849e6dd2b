//! PING in place of both commands: no lock at all, but the round trips of one.

use std::collections::VecDeque;

use super::{Lease, Party, Progress, Protocol, Step, unexpected};
use crate::engine::{Line, Reply, Wire};

pub struct Ping;

impl Protocol for Ping {
    fn name(&self) -> &'static str {
        "PING"
    }

    fn party(&self, _number: usize, _lock: &str, _lease: Lease) -> Box<dyn Party> {
        Box::new(Client { asked: VecDeque::new() })
    }
}

struct Client {
    asked: VecDeque<Step>,
}

impl Party for Client {
    fn acquire(&mut self, wire: &mut Wire<'_>) {
        wire.ask(&[b"PING"]);
        self.asked.push_back(Step::Acquire);
    }

    fn release(&mut self, wire: &mut Wire<'_>) {
        wire.ask(&[b"PING"]);
        self.asked.push_back(Step::Release);
    }

    fn on_reply(&mut self, _line: Line, reply: Reply, _wire: &mut Wire<'_>) -> Progress {
        match (self.asked.pop_front(), reply) {
            (Some(Step::Acquire), Reply::SimpleString(_)) => Progress::Granted,
            (Some(Step::Release), Reply::SimpleString(_)) => Progress::Released,
            (_, reply) => unexpected(&reply),
        }
    }
}
