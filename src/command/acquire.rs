//! `LOCK.ACQUIRE key token [EX s | PX ms] [BLOCK ms] [NX] [SESSION [GRACE ms]] [NOTIFY channel]
//! [MAXWAITERS n]`

use super::options::{Allowed, Options};
use super::{LockCommand, Parsed};
use crate::core::{Action, Error};

/// Takes the mutex. The reply is 1, or nil if another caller holds the lock.
pub struct Acquire;

impl LockCommand for Acquire {
    const NAME: &str = "lock.acquire";

    #[inline(always)]
    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Parsed, Error> {
        let allowed = Allowed::TAKING | Allowed::NX;
        let options = Options::parse(options, allowed)?;
        Ok(options.parsed(Action::Acquire { strict: options.nx }))
    }
}
