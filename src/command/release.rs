//! `LOCK.RELEASE key token [HOLD n] [EX s | PX ms]`

use super::options::{Allowed, Options};
use super::{LockCommand, Parsed};
use crate::core::{Action, Error};

/// Releases one hold. The reply is the number of remaining holds, or nil if the caller only waited.
pub struct Release;

impl LockCommand for Release {
    const NAME: &str = "lock.release";

    const OPTIONS: Allowed = Allowed::LEASE.union(Allowed::HOLD);

    #[inline(always)]
    fn request(options: &Options) -> Result<Parsed, Error> {
        Ok(options.parsed(Action::Release { hold: options.hold }))
    }
}
