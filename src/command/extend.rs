//! `LOCK.EXTEND key token (EX s | PX ms) [ADD]`

use super::options::{Allowed, Options};
use super::{LockCommand, Parsed};
use crate::core::{Action, Error};

/// Sets the lease, or adds to it. The reply is the remaining lease in milliseconds.
pub struct Extend;

impl LockCommand for Extend {
    const NAME: &str = "lock.extend";

    const OPTIONS: Allowed = Allowed::LEASE.union(Allowed::ADD);

    #[inline(always)]
    fn request(options: &Options) -> Result<Parsed, Error> {
        options.lease.ok_or(Error::Syntax)?;
        Ok(options.parsed(Action::Extend { add: options.add }))
    }
}
