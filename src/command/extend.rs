//! `LOCK.EXTEND key token (EX s | PX ms) [ADD]`

use super::options::{Allowed, Options};
use super::{Request, check_given_lease};
use crate::core::{self, Decision, Error, Lease, LeaseEnd, Lock, UnixMs};

/// Sets the lease, or adds to it. The reply is the remaining lease in milliseconds.
pub struct Extend {
    lease: Lease,
    add: bool,
}

impl Request for Extend {
    const NAME: &str = "lock.extend";

    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let Options { lease, add, .. } = Options::parse(options, Allowed::LEASE | Allowed::ADD)?;
        Ok(Self { lease: lease.ok_or(Error::Syntax)?, add })
    }

    fn check_lease(&self, longest: Lease) -> Result<(), Error> {
        check_given_lease(Some(self.lease), longest)
    }

    fn decide(&self, lock: &Lock<'_, impl LeaseEnd>, caller: &[u8], now: UnixMs) -> Result<Decision, Error> {
        core::extend(lock, caller, self.lease, self.add, now)
    }
}
