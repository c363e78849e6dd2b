//! This module's own commands, by which a client waits for a message. It listens on a connection of its own, to a channel of
//! its own.

use std::collections::VecDeque;

use super::token::Tokens;
use super::{Lease, Party, Progress, Protocol, Step, unexpected};
use crate::engine::{Line, Reply, Wire};

pub struct Notified;

impl Protocol for Notified {
    fn name(&self) -> &'static str {
        "LOCK.ACQUIRE NOTIFY"
    }

    fn lines(&self) -> usize {
        2
    }

    fn party(&self, number: usize, lock: &str, lease: Lease) -> Box<dyn Party> {
        Box::new(Client {
            key: lock.to_owned(),
            channel: format!("news:{number}"),
            listens: false,
            lease: lease.to_string(),
            tokens: Tokens::new(number),
            asked: VecDeque::new(),
        })
    }
}

struct Client {
    key: String,
    channel: String,
    listens: bool,
    lease: String,
    tokens: Tokens,
    asked: VecDeque<Step>,
}

impl Client {
    fn ask(&mut self, wire: &mut Wire<'_>) {
        let (key, lease, channel) = (self.key.as_bytes(), self.lease.as_bytes(), self.channel.as_bytes());
        let token = self.tokens.present();
        wire.ask(&[b"LOCK.ACQUIRE", key, token, b"PX", lease, b"BLOCK", b"0", b"NOTIFY", channel]);
        self.asked.push_back(Step::Acquire);
    }

    /// A message, or the answer to the subscription.
    fn on_news(&mut self, reply: Reply, wire: &mut Wire<'_>) -> Progress {
        let Reply::Array(parts) = &reply else { unexpected(&reply) };
        match parts.as_slice() {
            [Reply::BulkString(kind), ..] if kind == b"ssubscribe" => {
                self.listens = true;
                self.ask(wire);
                Progress::Pending
            }
            [_, _, Reply::BulkString(text)] if self.is_granted_by(text) => Progress::Granted,
            _ => unexpected(&reply),
        }
    }

    fn is_granted_by(&self, message: &[u8]) -> bool {
        let mut words = message.split(|&byte| byte == b' ');
        words.next() == Some(b"granted") && words.nth(2) == Some(self.tokens.present())
    }
}

impl Party for Client {
    fn acquire(&mut self, wire: &mut Wire<'_>) {
        self.tokens.draw();
        if self.listens {
            self.ask(wire);
        } else {
            wire.ask_on(Line::Channel, &[b"SSUBSCRIBE", self.channel.as_bytes()]);
        }
    }

    fn release(&mut self, wire: &mut Wire<'_>) {
        wire.ask(&[b"LOCK.RELEASE", self.key.as_bytes(), self.tokens.present()]);
        self.asked.push_back(Step::Release);
    }

    fn on_reply(&mut self, line: Line, reply: Reply, wire: &mut Wire<'_>) -> Progress {
        if line == Line::Channel {
            return self.on_news(reply, wire);
        }
        match (self.asked.pop_front(), &reply) {
            (Some(Step::Acquire), Reply::Integer(1)) => Progress::Granted,
            // The message may have been read before it.
            (Some(Step::Acquire), Reply::SimpleString(text)) if text == b"WAITING" => Progress::Pending,
            (Some(Step::Release), Reply::Integer(0)) => Progress::Released,
            _ => unexpected(&reply),
        }
    }
}
