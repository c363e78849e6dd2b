//! `LOCK.RELEASE key token [HOLD n] [EX s | PX ms]`

use super::options::{Allowed, Options};
use super::{Request, check_given_lease};
use crate::core::{self, Decision, Error, Lease, LeaseEnd, Lock, UnixMs, Write};

/// Releases one hold. The reply is the number of remaining holds, or nil if the caller only waited.
pub struct Release(Options);

impl Request for Release {
    const NAME: &str = "lock.release";

    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Options::parse(options, Allowed::LEASE | Allowed::HOLD).map(Self)
    }

    fn check_lease(&self, longest: Lease) -> Result<(), Error> {
        check_given_lease(self.0.lease, longest)
    }

    fn decide(&self, lock: &Lock<'_, impl LeaseEnd>, caller: &[u8], now: UnixMs) -> Result<Decision, Error> {
        core::release(lock, caller, self.0.lease, self.0.hold, now)
    }

    /// A token neither holds nor waits after its last release, so a client can always clean up with it.
    fn withdraws(&self, outcome: &Result<Decision, Error>) -> bool {
        match outcome {
            Ok(Decision::Done { write, .. }) => matches!(write, Write::Free | Write::RemoveShare),
            Ok(Decision::Contended) => false,
            Err(error) => [Error::NotHeld, Error::NotOwner, Error::WrongType].contains(error),
        }
    }
}
