//! The token of a request: a number that a run uses once.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

#[derive(Default)]
pub struct Tokens(AtomicU64);

impl Tokens {
    pub fn fresh(&self) -> Token {
        Token(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

impl Token {
    /// Reads a token as the server shows it; `None` if this program has not written it.
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
