//! One wait for a message, from the first request to the release.

use std::time::{Duration, Instant};

use super::super::claim::Claim;
use super::tracker::Tracker;
use crate::history::Kind;
use crate::keys::Key;
use crate::run::Run;

const MAX_BLOCK_MS: u64 = 1500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    Holding,
    /// The client does nothing more with the token, but a message can be under way.
    Over,
}

/// The next step of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asks again on this channel.
    Ask(usize),
    /// Asks again from another connection, which it blocks.
    Block,
    Release,
    /// Lets the lease end.
    Forget,
}

pub struct Wait<'r> {
    pub claim: Claim<'r>,
    /// A moment before the first request.
    pub begun: Instant,
    /// For each channel.
    pub trackers: [Tracker; 2],
    pub phase: Phase,
    pub next: Option<(Instant, Step)>,
}

impl<'r> Wait<'r> {
    pub fn new(run: &'r Run, key: &'r Key, random: &mut fastrand::Rng) -> Self {
        let kind = match random.u8(..8) {
            0 => Kind::Reentrant,
            1..4 => Kind::Share,
            _ => Kind::Mutex,
        };
        let session = random.u8(..8) == 0;
        let lease = if session { random.u64(100..=500) } else { random.u64(5..=run.shorter(500)) };
        let claim = Claim { session, ..Claim::new(run, key, kind, Some(lease)) };
        Self { claim, begun: Instant::now(), trackers: Default::default(), phase: Phase::Waiting, next: None }
    }

    /// The request with any BLOCK.
    pub fn request(&self, run: &Run, random: &mut fastrand::Rng) -> (String, Duration) {
        let longest = if random.bool() { 99 } else { run.shorter(MAX_BLOCK_MS) };
        let block = random.u64(1..=longest);
        (self.claim.request(Some(block)), Duration::from_millis(block))
    }

    pub fn is_released(&self) -> bool {
        self.trackers[0].is_released
    }

    /// Whether a reply or a message must still come.
    pub fn is_open(&self) -> bool {
        self.trackers.iter().any(Tracker::is_open)
    }

    /// The request waits. Mostly the client does nothing more.
    pub fn waits(&mut self, now: Instant, random: &mut fastrand::Rng) {
        let step = match random.u8(..12) {
            0 => Step::Release,
            1 => Step::Ask(0),
            2 => Step::Ask(1),
            // The lock of a session would belong to the other connection too.
            3 if !self.claim.session => Step::Block,
            _ => return,
        };
        // Its message can have come before.
        if self.phase == Phase::Waiting {
            self.next = Some((now + Duration::from_millis(random.u64(..60)), step));
        }
    }

    /// The client knows of the grant, and holds the lock for some time.
    pub fn is_granted(&mut self, now: Instant, random: &mut fastrand::Rng) {
        if self.phase != Phase::Waiting {
            return;
        }
        self.phase = Phase::Holding;
        if !self.is_released() {
            let lease = self.claim.lease_ms.unwrap_or_default();
            let span = if random.bool() { 0 } else { random.u64(..=lease + lease / 4) };
            let step = if random.u8(..8) == 0 && !self.claim.session { Step::Forget } else { Step::Release };
            self.next = Some((now + Duration::from_millis(span), step));
        }
    }

    /// Ends the wait if nothing more comes. After a reply the client releases the token, which can wait on the other
    /// channel.
    pub fn settle(&mut self, now: Instant, is_reply: bool) {
        if self.phase != Phase::Waiting || self.next.is_some() || self.is_open() {
            return;
        }
        if !is_reply {
            self.phase = Phase::Over;
        } else if !self.is_released() {
            self.next = Some((now, Step::Release));
        }
    }
}
