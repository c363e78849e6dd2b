//! Replies of more than one value.

use std::borrow::Cow;

/// A reply in RESP2 or RESP3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'r> {
    Nil,
    Integer(i64),
    /// A bulk string, of any bytes.
    Bytes(Cow<'r, [u8]>),
    Array(Vec<Reply<'r>>),
    /// A map in RESP3, a flat array in RESP2.
    Map(Vec<(&'static str, Reply<'r>)>),
}

impl Reply<'_> {
    /// Returns the same reply without borrowed bytes.
    pub fn into_owned(self) -> Reply<'static> {
        match self {
            Self::Nil => Reply::Nil,
            Self::Integer(value) => Reply::Integer(value),
            Self::Bytes(bytes) => Reply::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Array(items) => Reply::Array(items.into_iter().map(Reply::into_owned).collect()),
            Self::Map(pairs) => Reply::Map(pairs.into_iter().map(|(name, value)| (name, value.into_owned())).collect()),
        }
    }

    /// Returns an integer reply. A count beyond the range of an `i64` becomes its maximum.
    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Returns a bulk string reply.
    pub fn text(text: &'static str) -> Self {
        Self::Bytes(Cow::Borrowed(text.as_bytes()))
    }
}
