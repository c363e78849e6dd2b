//! `LOCK.SHARE key token [EX s | PX ms] [LIMIT n] [BLOCK ms] [SESSION [GRACE ms]] [NOTIFY channel]
//! [MAXWAITERS n]`

use super::options::{Allowed, Options};
use super::{LockCommand, Parsed};
use crate::core::{Action, Error};

/// Takes a share of the lock. The reply is 1, or nil if the share cannot be granted now.
pub struct Share;

impl LockCommand for Share {
    const NAME: &str = "lock.share";

    #[inline(always)]
    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Parsed, Error> {
        let allowed = Allowed::TAKING | Allowed::LIMIT;
        let options = Options::parse(options, allowed)?;
        Ok(options.parsed(Action::Share { limit: options.limit }))
    }
}
