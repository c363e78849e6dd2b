//! `LOCK.RELEASE key token [HOLD n] [EX s | PX ms]`

use super::options::{Allowed, Options};
use super::{LockCommand, Parsed};
use crate::core::{Action, Error};

/// Releases one hold. The reply is the number of remaining holds, or nil if the caller only waited.
pub struct Release;

impl LockCommand for Release {
    const NAME: &str = "lock.release";

    #[inline(always)]
    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Parsed, Error> {
        let options = Options::parse(options, Allowed::LEASE | Allowed::HOLD)?;
        Ok(options.parsed(Action::Release { hold: options.hold }))
    }
}
