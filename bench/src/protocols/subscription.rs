//! How a client of Redisson's waits: it subscribes when it is refused first, and tries again after each message.

use std::time::Duration;

use super::unexpected;
use crate::engine::{Line, Reply, Wire};

/// The subscription of one client to the channel on which a release is told.
pub struct Subscription {
    channel: String,
    stage: Stage,
}

/// Where a client stands on its way to what it wants.
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

impl Subscription {
    pub fn new(channel: String) -> Self {
        Self { channel, stage: Stage::Idle }
    }

    pub fn channel(&self) -> &[u8] {
        self.channel.as_bytes()
    }

    /// The client tries for the first time.
    pub fn try_without(&mut self) {
        self.stage = Stage::Trying;
    }

    /// The client has got it.
    pub fn granted(&mut self, wire: &mut Wire<'_>) {
        if matches!(self.stage, Stage::Retrying { .. }) {
            wire.tell_on(Line::Channel, &[b"UNSUBSCRIBE", self.channel.as_bytes()]);
        }
        self.stage = Stage::Idle;
    }

    /// The client was refused. Without `remaining` there is no lease whose end it could wait for. Returns whether it is to
    /// try again at once.
    pub fn refused(&mut self, remaining: Option<Duration>, wire: &mut Wire<'_>) -> bool {
        match self.stage {
            Stage::Retrying { messages: 0 } => {
                self.stage = Stage::Waiting;
                if let Some(remaining) = remaining {
                    wire.wake_after(remaining);
                }
                false
            }
            Stage::Retrying { messages } => self.retry(messages - 1),
            _ => {
                self.stage = Stage::Subscribing;
                wire.ask_on(Line::Channel, &[b"SUBSCRIBE", self.channel.as_bytes()]);
                false
            }
        }
    }

    /// Something has come on the line of the subscription. Returns whether the client is to try again.
    pub fn heard(&mut self, reply: &Reply, wire: &mut Wire<'_>) -> bool {
        let Reply::Array(items) = reply else { unexpected(reply) };
        let Some(Reply::BulkString(kind)) = items.first() else { panic!("a message without a kind") };
        match (kind.as_slice(), self.stage) {
            (b"subscribe", Stage::Subscribing) => self.retry(0),
            (b"message", Stage::Waiting) => {
                wire.cancel_alarm();
                self.retry(0)
            }
            (b"message", Stage::Retrying { messages }) => {
                self.stage = Stage::Retrying { messages: messages + 1 };
                false
            }
            // Of a subscription that is over.
            _ => false,
        }
    }

    /// The end of the lease has come. Returns whether the client is to try again.
    pub fn woken(&mut self) -> bool {
        self.stage == Stage::Waiting && self.retry(0)
    }

    fn retry(&mut self, messages: u32) -> bool {
        self.stage = Stage::Retrying { messages };
        true
    }
}
