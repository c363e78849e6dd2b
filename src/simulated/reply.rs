//! Replies and messages to clients.

use super::crash::crash;

/// A reply or a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Integer(i64),
    Nil,
    Status(&'static str),
    Error(String),
    Bytes(Vec<u8>),
    Array(Vec<Self>),
    Map(Vec<(Self, Self)>),
    /// A message in RESP3, where it has a type of its own.
    Push(Vec<Self>),
}

/// A part of a reply, in the order in which the module makes it.
pub(super) enum Piece {
    Whole(Reply),
    /// The start of an array, with the number of its elements.
    Array(usize),
    /// The start of a map, with the number of its pairs.
    Map(usize),
}

impl Reply {
    pub const OK: Self = Self::Status("OK");

    pub(super) fn error(text: &str) -> Self {
        Self::Error(text.to_owned())
    }

    pub(super) fn bytes(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }

    /// Returns whether the pieces are the start of a reply that is not complete.
    pub(super) fn is_begun(pieces: &[Piece]) -> bool {
        let missing = pieces.iter().fold(0_usize, |missing, piece| {
            let elements = match piece {
                Piece::Whole(_) => 0,
                Piece::Array(len) => *len,
                Piece::Map(len) => len.saturating_mul(2),
            };
            missing.saturating_sub(1).saturating_add(elements)
        });
        missing > 0
    }

    /// Returns the replies that the pieces make up.
    pub(super) fn all_of(pieces: Vec<Piece>) -> Vec<Self> {
        let mut pieces = pieces.into_iter();
        std::iter::from_fn(|| Self::next_of(&mut pieces)).collect()
    }

    fn next_of(pieces: &mut impl Iterator<Item = Piece>) -> Option<Self> {
        let element = |pieces: &mut _| Self::next_of(pieces).unwrap_or_else(|| crash("a reply that has no end"));
        Some(match pieces.next()? {
            Piece::Whole(reply) => reply,
            Piece::Array(len) => Self::Array((0..len).map(|_| element(pieces)).collect()),
            Piece::Map(len) => Self::Map((0..len).map(|_| (element(pieces), element(pieces))).collect()),
        })
    }
}
