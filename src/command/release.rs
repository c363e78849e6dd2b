//! `LOCK.RELEASE key token [EX s | PX ms]`

use super::Request;
use super::options::{Allowed, Options};
use crate::core::{self, Decision, Lock, Refusal, UnixMs};

/// Gives up one hold. Reply: the holds that remain.
pub struct Release(Options);

impl Request for Release {
    const NAME: &str = "lock.release";

    fn parse(options: &[&[u8]]) -> Result<Self, Refusal> {
        Options::parse(options, Allowed::LEASE).map(Self)
    }

    fn decide(&self, lock: &Lock<'_>, caller: &[u8], now: UnixMs) -> Result<Decision, Refusal> {
        core::release(lock, caller, self.0.lease, now)
    }
}
