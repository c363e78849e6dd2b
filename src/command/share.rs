//! `LOCK.SHARE key token [EX s | PX ms] [LIMIT n] [BLOCK ms] [SESSION [GRACE ms]] [NOTIFY channel]
//! [MAXWAITERS n]`

use super::options::{Allowed, Options};
use super::{LockCommand, Parsed};
use crate::core::{Action, Error};

/// Takes a share of the lock. The reply is 1, or nil if the share cannot be granted now.
pub struct Share;

impl LockCommand for Share {
    const NAME: &str = "lock.share";

    const OPTIONS: Allowed = Allowed::TAKING.union(Allowed::LIMIT);

    #[inline(always)]
    fn request(options: &Options) -> Result<Parsed, Error> {
        Ok(options.parsed(Action::Share { limit: options.limit }))
    }
}
