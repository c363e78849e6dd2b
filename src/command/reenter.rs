//! `LOCK.REENTER key owner [EX s | PX ms] [BLOCK ms] [HOLD n] [SESSION [GRACE ms]] [NOTIFY channel]
//! [MAXWAITERS n]`

use super::options::{Allowed, Options};
use super::{LockCommand, Parsed};
use crate::core::{Action, Error};

/// Takes the re-entrant lock, or one more hold of it. The reply is the caller's number of holds, or nil if another caller holds
/// the lock.
pub struct Reenter;

impl LockCommand for Reenter {
    const NAME: &str = "lock.reenter";

    const OPTIONS: Allowed = Allowed::TAKING.union(Allowed::HOLD);

    #[inline(always)]
    fn request(options: &Options) -> Result<Parsed, Error> {
        Ok(options.parsed(Action::Reenter { hold: options.hold }))
    }
}
