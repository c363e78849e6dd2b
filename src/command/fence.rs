//! `LOCK.FENCE key token counter`

use super::split_request;
use crate::core::{self, Lock, Refusal};

/// Draws a fencing token for the present holder from a counter, which is a key of its own.
pub struct Fence<'a> {
    caller: &'a [u8],
}

impl<'a> Fence<'a> {
    /// The command in lower case, as the server reports it.
    pub const NAME: &'static str = "lock.fence";

    /// Reads the words behind the command name.
    pub fn parse(arguments: &'a [&'a [u8]]) -> Result<Self, Refusal> {
        let [key, _, counter] = arguments else { return Err(Refusal::Arity) };
        let (caller, _) = split_request(arguments)?;
        if key == counter { Err(Refusal::SameKey) } else { Ok(Self { caller }) }
    }

    /// The token that follows `last`, the value of the counter.
    pub fn draw(&self, lock: &Lock<'_>, last: Option<i64>, now_us: i64) -> Result<i64, Refusal> {
        core::fence(lock, self.caller, last, now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_a_key_a_token_and_a_counter_of_its_own() {
        assert!(Fence::parse(&[b"k", b"t", b"c"]).is_ok());
        assert_eq!(Fence::parse(&[b"k", b"t"]).err(), Some(Refusal::Arity));
        assert_eq!(Fence::parse(&[b"k", b"t", b"c", b"x"]).err(), Some(Refusal::Arity));
        assert_eq!(Fence::parse(&[b"k", b"", b"c"]).err(), Some(Refusal::IdentityLength));
        assert_eq!(Fence::parse(&[b"k", b"t", b"k"]).err(), Some(Refusal::SameKey));
    }
}
