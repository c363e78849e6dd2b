//! `LOCK.ACQUIRE key token [EX s | PX ms] [BLOCK ms] [NX]`

use super::options::{Allowed, Options};
use super::{Request, Wait};
use crate::core::{self, Decision, Kind, Lock, Refusal, UnixMs};

/// Takes the mutex. Reply: 1, or nil where somebody else holds it.
pub struct Acquire(Options);

impl Request for Acquire {
    const NAME: &str = "lock.acquire";

    fn parse(options: &[&[u8]]) -> Result<Self, Refusal> {
        Options::parse(options, Allowed::LEASE | Allowed::BLOCK | Allowed::NX).map(Self)
    }

    fn decide(&self, lock: &Lock<'_>, caller: &[u8], now: UnixMs) -> Result<Decision, Refusal> {
        Ok(core::acquire(lock, caller, self.0.lease, self.0.nx, now))
    }

    fn wait(&self) -> Option<Wait> {
        let patience = self.0.block?;
        Some(Wait { kind: Kind::Mutex, lease: self.0.lease, patience })
    }
}
