//! `LOCK.REENTER key owner [EX s | PX ms] [BLOCK ms] [HOLD n] [SESSION] [NOTIFY channel]`

use super::options::{Allowed, Options};
use super::{Request, WaitOptions, check_needed_lease, check_session};
use crate::core::{self, Decision, Error, Kind, Lease, LeaseEnd, Lock, UnixMs};

/// Takes the re-entrant lock, or one more hold of it. The reply is the caller's number of holds, or nil if another caller holds
/// the lock.
pub struct Reenter(Options);

impl Request for Reenter {
    const NAME: &str = "lock.reenter";

    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Options::parse(options, Allowed::LEASE | Allowed::BLOCK | Allowed::HOLD | Allowed::SESSION | Allowed::NOTIFY)
            .map(Self)
    }

    fn check_lease(&self, longest: Lease) -> Result<(), Error> {
        check_needed_lease(self.0.lease, longest)
    }

    fn decide(&self, lock: &Lock<'_, impl LeaseEnd>, caller: &[u8], now: UnixMs) -> Result<Decision, Error> {
        let decision = core::reenter(lock, caller, self.0.lease, self.0.hold, now)?;
        check_session(self.0.session, lock, caller, decision)
    }

    fn session(&self) -> Option<(Kind, Lease)> {
        self.0.session_as(Kind::Reentrant)
    }

    fn wait(&self) -> Option<WaitOptions> {
        WaitOptions::of(Kind::Reentrant, &self.0)
    }
}
