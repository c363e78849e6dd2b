//! `LOCK.FENCE key token counter`

use super::check_identity;
use crate::core::{self, Error, LeaseEnd, Lock};

/// Draws a fencing token for the holder. The counter is another key than the lock.
pub struct Fence<'a> {
    caller: &'a [u8],
}

impl<'a> Fence<'a> {
    /// The name of the command, in lower case as the server reports it.
    pub const NAME: &'static str = "lock.fence";

    /// Parses the arguments of the command.
    ///
    /// # Errors
    ///
    /// - [`Error::IdentityLength`] if the token is empty or too long.
    /// - [`Error::SameKey`] if the counter is the lock.
    pub fn parse(key: &[u8], caller: &'a [u8], counter: &[u8]) -> Result<Self, Error> {
        let caller = check_identity(caller)?;
        if key == counter { Err(Error::SameKey) } else { Ok(Self { caller }) }
    }

    /// Checks that the caller holds the lock.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] or [`Error::NotOwner`] if it does not.
    pub fn check_holder(&self, lock: &Lock<'_, impl LeaseEnd>) -> Result<(), Error> {
        lock.held_by(self.caller).map(|_| ())
    }

    /// Returns the fencing token after `last`, the value of the counter. `now_us` is the Unix time in microseconds.
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`] if the counter has reached its maximum.
    pub fn draw(&self, last: Option<i64>, now_us: i64) -> Result<i64, Error> {
        core::next_fencing_token(last, now_us)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::core::{Holder, Kind};

    #[test]
    fn only_holder_draws_token() {
        let holder = Holder { kind: Kind::Mutex, owner: Cow::Borrowed(b"me"), holds: 1, lease_end: None };
        let check = |caller, lock: &Lock<'_>| Fence::parse(b"k", caller, b"c").unwrap().check_holder(lock);
        assert_eq!(check(b"me", &Lock::Free), Err(Error::NotHeld));
        assert_eq!(check(b"you", &Lock::Held(holder.clone())), Err(Error::NotOwner));
        assert_eq!(check(b"me", &Lock::Held(holder)), Ok(()));
    }

    #[test]
    fn counter_differs_from_lock() {
        assert!(Fence::parse(b"k", b"t", b"c").is_ok());
        assert_eq!(Fence::parse(b"k", b"", b"c").err(), Some(Error::IdentityLength));
        assert_eq!(Fence::parse(b"k", b"t", b"k").err(), Some(Error::SameKey));
    }
}
