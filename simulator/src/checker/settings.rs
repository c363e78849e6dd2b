//! The settings of the module.

use super::spec::Ms;
use crate::request::Terms;
use crate::step::Knob;

/// The settings of the module.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// The most requests that may wait.
    pub waiters: usize,
    /// The most sessions, with those that requests wait for.
    pub sessions: usize,
    /// The longest wait, if there is one.
    pub block_ms: Option<Ms>,
    /// How long a queue entry is kept after its last waiter has left.
    pub grace_ms: Ms,
    /// The longest lease, if there is one.
    pub lease_ms: Option<Ms>,
    /// The recovery period.
    pub recovery_ms: Ms,
}

impl Limits {
    /// Returns the end of a lease, no later than a lease that is set now may end.
    pub fn cut_end(&self, end: Ms, now: Ms) -> Ms {
        self.lease_ms.map_or(end, |longest| end.min(now + longest))
    }

    pub fn new(grace_ms: Ms) -> Self {
        Self { waiters: usize::MAX, sessions: usize::MAX, block_ms: None, grace_ms, lease_ms: None, recovery_ms: 0 }
    }

    pub fn set(&mut self, knob: Knob, value: u32) {
        match knob {
            Knob::MaxWaiters => self.waiters = value as usize,
            Knob::MaxSessions => self.sessions = value as usize,
            Knob::MaxBlockMs => self.block_ms = Some(Ms::from(value)).filter(|&ms| ms > 0),
            Knob::RejoinGraceMs => self.grace_ms = Ms::from(value),
            Knob::MaxLeaseMs => self.lease_ms = Some(Ms::from(value)).filter(|&ms| ms > 0),
            Knob::RecoveryMs => self.recovery_ms = Ms::from(value),
            Knob::MaxLag | Knob::WakeForeign => {}
        }
    }

    /// Returns a lease, cut to the longest one.
    pub fn cut(&self, lease: i64) -> i64 {
        self.lease_ms.map_or(lease, |longest| lease.min(longest))
    }

    /// Returns the terms of a session that is granted now.
    pub fn cut_terms(&self, Terms { lease, grace }: Terms) -> Terms {
        Terms { lease: self.cut(lease), grace: grace.map(|grace| self.cut(grace)) }
    }

    /// Returns the end of the grace period of a queue entry whose last waiter leaves now. `None`: the entry is removed.
    pub fn kept_until(&self, now: Ms) -> Option<Ms> {
        Some(now + self.grace_ms).filter(|_| self.grace_ms > 0)
    }

    /// Returns the deadline of a wait that begins now. `block` is 0 for a wait without an end.
    pub fn deadline(&self, block: Ms, now: Ms) -> Option<Ms> {
        let asked = Some(block).filter(|&ms| ms > 0);
        asked.into_iter().chain(self.block_ms).min().map(|ms| now + ms)
    }
}
