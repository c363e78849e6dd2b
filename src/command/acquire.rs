//! `LOCK.ACQUIRE key token [EX s | PX ms] [BLOCK ms] [NX] [SESSION] [NOTIFY channel]`

use super::options::{Allowed, Options};
use super::{Request, WaitOptions, check_needed_lease, check_session};
use crate::core::{self, Decision, Error, Kind, Lease, LeaseEnd, Lock, UnixMs};

/// Takes the mutex. The reply is 1, or nil if another caller holds the lock.
pub struct Acquire(Options);

impl Request for Acquire {
    const NAME: &str = "lock.acquire";

    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Options::parse(options, Allowed::LEASE | Allowed::BLOCK | Allowed::NX | Allowed::SESSION | Allowed::NOTIFY)
            .map(Self)
    }

    fn check_lease(&self, longest: Lease) -> Result<(), Error> {
        check_needed_lease(self.0.lease, longest)
    }

    fn decide(&self, lock: &Lock<'_, impl LeaseEnd>, caller: &[u8], now: UnixMs) -> Result<Decision, Error> {
        let decision = core::acquire(lock, caller, self.0.lease, self.0.nx, now)?;
        check_session(self.0.session, lock, caller, decision)
    }

    fn session(&self) -> Option<(Kind, Lease)> {
        self.0.session_as(Kind::Mutex)
    }

    fn wait(&self) -> Option<WaitOptions> {
        WaitOptions::of(Kind::Mutex, &self.0)
    }
}
