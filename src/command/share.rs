//! `LOCK.SHARE key token [EX s | PX ms] [LIMIT n] [BLOCK ms] [SESSION] [NOTIFY channel]`

use super::options::{Allowed, Options};
use super::{Request, WaitOptions, check_needed_lease, check_session};
use crate::core::{self, Decision, Error, Kind, Lease, LeaseEnd, Lock, UnixMs};

/// Takes a share of the lock. The reply is 1, or nil if the share cannot be granted now.
pub struct Share(Options);

impl Request for Share {
    const NAME: &str = "lock.share";

    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Options::parse(options, Allowed::LEASE | Allowed::LIMIT | Allowed::BLOCK | Allowed::SESSION | Allowed::NOTIFY)
            .map(Self)
    }

    fn check_lease(&self, longest: Lease) -> Result<(), Error> {
        check_needed_lease(self.0.lease, longest)
    }

    fn decide(&self, lock: &Lock<'_, impl LeaseEnd>, caller: &[u8], now: UnixMs) -> Result<Decision, Error> {
        let decision = core::share(lock, caller, self.0.lease, self.0.limit, now)?;
        check_session(self.0.session, lock, caller, decision)
    }

    fn session(&self) -> Option<(Kind, Lease)> {
        self.0.session_as(Kind::Shared)
    }

    fn wait(&self) -> Option<WaitOptions> {
        WaitOptions::of(Kind::Shared, &self.0)
    }
}
