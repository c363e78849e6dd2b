//! One wait for a message, from the first request to the release.

use std::time::{Duration, Instant};

use super::super::claim::Claim;
use crate::evidence::Since;
use crate::keys::Key;
use crate::run::Run;

const MAX_BLOCK_MS: u64 = 1500;
/// The time that a message may take on a server that does not stall.
const SLACK: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    Holding,
    /// The client does nothing more with the token, but a message can be under way.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Ask,
    /// Asks again from another connection, which it blocks.
    Block,
    Release,
    Forget,
}

pub struct Wait<'r> {
    pub claim: Claim<'r>,
    pub phase: Phase,
    pub next: Option<(Instant, Step)>,
    pub is_released: bool,
    pub message: Expected,
}

#[derive(Default)]
pub struct Expected {
    asked: Option<(Since, Duration)>,
    open: u32,
    /// A message came, or can have been lost, while a request had no reply.
    is_disturbed: bool,
    is_due: bool,
}

impl Expected {
    pub fn asked(&mut self, since: Since, block: Duration) {
        (self.asked, self.is_due) = (Some((since, block)), false);
        self.is_disturbed &= self.open > 0;
        self.open += 1;
    }

    /// A reply was read: with `waiting` the wait goes on until a message.
    pub fn answered(&mut self, waiting: bool) {
        self.open = self.open.saturating_sub(1);
        self.is_due = waiting && self.open == 0 && !self.is_disturbed;
    }

    /// A message came, or nothing listens for a moment and it can get lost.
    pub fn ends(&mut self) {
        (self.is_due, self.is_disturbed) = (false, true);
    }

    /// The connection that asked is closed: no reply comes any more, and perhaps no message.
    pub fn closed(&mut self) {
        (self.is_due, self.open) = (false, 0);
    }

    /// The request for which a message must come, and the longest time until it.
    pub fn owed(&self) -> Option<(Since, Duration)> {
        self.asked.filter(|_| self.is_due).map(|(since, block)| (since, block + SLACK))
    }
}

impl<'r> Wait<'r> {
    pub fn new(run: &'r Run, key: &'r Key, random: &mut fastrand::Rng) -> Self {
        let session = random.u8(..8) == 0;
        let lease = if session { random.u64(100..=500) } else { random.u64(5..=run.shorter(500)) };
        let claim = Claim { session, ..Claim::any(run, key, lease, random) };
        Self { claim, phase: Phase::Waiting, next: None, is_released: false, message: Expected::default() }
    }

    pub fn request(&self, run: &Run, random: &mut fastrand::Rng) -> (String, Duration) {
        let longest = if random.bool() { 99 } else { run.shorter(MAX_BLOCK_MS) };
        let block = random.u64(1..=longest);
        (self.claim.request(Some(block)), Duration::from_millis(block))
    }

    /// The request waits. Mostly the client does nothing more.
    pub fn waits(&mut self, now: Instant, random: &mut fastrand::Rng) {
        let step = match random.u8(..12) {
            0 => Step::Release,
            1 | 2 => Step::Ask,
            // A session would move to the other connection.
            3 if !self.claim.session => Step::Block,
            _ => return,
        };
        // Its message can have come before.
        if self.phase == Phase::Waiting {
            self.next = Some((now + Duration::from_millis(random.u64(..60)), step));
        }
    }

    pub fn is_granted(&mut self, now: Instant, random: &mut fastrand::Rng) {
        if self.phase != Phase::Waiting {
            return;
        }
        self.phase = Phase::Holding;
        if !self.is_released {
            let lease = self.claim.lease_ms.unwrap_or_default();
            let span = if random.bool() { 0 } else { random.u64(..=lease + lease / 4) };
            let step = if random.u8(..8) == 0 && !self.claim.session { Step::Forget } else { Step::Release };
            self.next = Some((now + Duration::from_millis(span), step));
        }
    }

    pub fn settle(&mut self) {
        if self.phase == Phase::Waiting && self.next.is_none() && !self.message.is_due && self.message.open == 0 {
            self.phase = Phase::Over;
        }
    }
}

#[test]
fn message_is_owed_until_it_comes_or_can_be_lost() {
    let since = (Instant::now(), Duration::ZERO);
    let asked = |has_reply: bool| {
        let mut message = Expected::default();
        message.asked(since, Duration::from_millis(100));
        if has_reply {
            message.answered(true);
        }
        message
    };
    let mut message = asked(true);
    assert_eq!(message.owed(), Some((since, Duration::from_millis(600))));
    message.ends();
    assert_eq!(message.owed(), None);
    message.asked(since, Duration::from_millis(50));
    message.answered(true);
    assert_eq!(message.owed(), Some((since, Duration::from_millis(550))), "it was asked again");
    let mut message = asked(false);
    message.ends();
    message.answered(true);
    assert_eq!(message.owed(), None, "its reply was under way");
}
