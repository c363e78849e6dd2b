//! `LOCK.REENTER key owner [EX s | PX ms] [BLOCK ms] [HOLD n] [SESSION]`

use super::options::{Allowed, Options};
use super::{Request, WaitOptions, check_session};
use crate::core::{self, Decision, Error, Kind, Lease, LeaseEnd, Lock, UnixMs};

/// Takes the re-entrant lock, or one more hold of it. The reply is the caller's number of holds, or nil if somebody
/// else holds the lock.
pub struct Reenter(Options);

impl Request for Reenter {
    const NAME: &str = "lock.reenter";

    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Options::parse(options, Allowed::LEASE | Allowed::BLOCK | Allowed::HOLD | Allowed::SESSION).map(Self)
    }

    fn decide(&self, lock: &Lock<'_, impl LeaseEnd>, caller: &[u8], now: UnixMs) -> Result<Decision, Error> {
        let decision = core::reenter(lock, caller, self.0.lease, self.0.hold, now)?;
        check_session(self.0.session, lock, decision)
    }

    fn session(&self) -> Option<(Kind, Lease)> {
        self.0.session_as(Kind::Reentrant)
    }

    fn wait(&self) -> Option<WaitOptions> {
        let timeout = self.0.block?;
        Some(WaitOptions { kind: Kind::Reentrant, lease: self.0.lease, session: self.0.session, timeout })
    }
}
