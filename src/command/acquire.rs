//! `LOCK.ACQUIRE key token [EX s | PX ms] [BLOCK ms] [NX] [SESSION [GRACE ms]] [NOTIFY channel]
//! [MAXWAITERS n]`

use super::options::{Allowed, Options};
use super::{LockCommand, Parsed};
use crate::core::{Action, Error};

/// Takes the mutex. The reply is 1, or nil if another caller holds the lock.
pub struct Acquire;

impl LockCommand for Acquire {
    const NAME: &str = "lock.acquire";

    const OPTIONS: Allowed = Allowed::TAKING.union(Allowed::NX);

    #[inline(always)]
    fn request(options: &Options) -> Result<Parsed, Error> {
        Ok(options.parsed(Action::Acquire { strict: options.nx }))
    }
}
