//! Who a request is from: a number that this run uses once.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

/// Gives out tokens that nobody has had before.
#[derive(Default)]
pub struct Mint(AtomicU64);

impl Mint {
    pub fn fresh(&self) -> Token {
        Token(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

impl Token {
    /// The token that the server names; None for what this program has not written.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let digits = std::str::from_utf8(bytes).ok()?.strip_prefix('t')?;
        u64::from_str_radix(digits, 16).ok().map(Self)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{:x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_written() {
        let mint = Mint::default();
        let tokens: Vec<Token> = (0..20).map(|_| mint.fresh()).collect();
        assert!(tokens.iter().all(|token| Token::read(token.to_string().as_bytes()) == Some(*token)));
        assert_eq!(Token::read(b"somebody"), None);
    }
}
