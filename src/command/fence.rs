//! `LOCK.FENCE key token counter`

use super::check_identity;
use crate::core::{self, LeaseEnd, Lock, Refusal};

/// Draws a fencing token for the present holder from a counter, which is a key of its own.
pub struct Fence<'a> {
    caller: &'a [u8],
}

impl<'a> Fence<'a> {
    /// The command in lower case, as the server reports it.
    pub const NAME: &'static str = "lock.fence";

    /// Reads the words behind the command name.
    pub fn parse(key: &[u8], caller: &'a [u8], counter: &[u8]) -> Result<Self, Refusal> {
        let caller = check_identity(caller)?;
        if key == counter { Err(Refusal::SameKey) } else { Ok(Self { caller }) }
    }

    /// The token that follows `last`, the value of the counter.
    pub fn draw(&self, lock: &Lock<'_, impl LeaseEnd>, last: Option<i64>, now_us: i64) -> Result<i64, Refusal> {
        core::fence(lock, self.caller, last, now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_a_key_a_token_and_a_counter_of_its_own() {
        assert!(Fence::parse(b"k", b"t", b"c").is_ok());
        assert_eq!(Fence::parse(b"k", b"", b"c").err(), Some(Refusal::IdentityLength));
        assert_eq!(Fence::parse(b"k", b"t", b"k").err(), Some(Refusal::SameKey));
    }
}
