//! The required replies.

use redis_lock::server::{ClientId, Reply, Tag};

use super::Name;
use super::listed::Listed;
use super::lock_model::Waiting;
use super::shown::Shown;
use super::spec::Who;

/// A required reply.
pub(super) enum Expected {
    Integer(i64),
    Nil,
    Error(&'static str),
    Shown(Shown),
    Listed(Listed),
    /// The reply to a holder that asks again, or, if its session is beyond the limit, SESSIONFULL.
    Confirmed {
        name: Name,
        client: ClientId,
        reply: i64,
        or_full: bool,
    },
    /// The request waits for a message. If `refused` is set, that reply is allowed, too.
    Waits {
        name: Name,
        request: Box<Waiting>,
        who: Who,
        refused: Option<Box<Expected>>,
        /// The request whose message says that this one has taken its place.
        replaces: Option<Tag>,
    },
    /// One of these errors, or nil if `or_nil` is set.
    OneOf {
        codes: Vec<&'static str>,
        or_nil: bool,
    },
    /// This reply, or TRYAGAIN: it is uncertain whether the lock is to be returned to the caller.
    OrTryAgain(Box<Expected>),
    /// Any reply except an error.
    Anything,
}

impl Expected {
    /// Returns whether the request may wait for a message.
    pub fn may_wait(&self) -> bool {
        match self {
            Self::Waits { .. } => true,
            Self::OrTryAgain(expected) => expected.may_wait(),
            _ => false,
        }
    }

    /// Returns whether a reply is a correct one.
    pub fn is(&self, reply: &Reply) -> bool {
        let is_error = |code: &str| matches!(reply, Reply::Error(text) if text.split(' ').next() == Some(code));
        match self {
            Self::Integer(value) => *reply == Reply::Integer(*value),
            Self::Nil => *reply == Reply::Nil,
            Self::Error(code) => is_error(code),
            Self::Confirmed { reply: value, or_full, .. } => {
                *reply == Reply::Integer(*value) || *or_full && is_error("SESSIONFULL")
            }
            Self::Waits { refused, .. } => {
                *reply == Reply::Status("WAITING") || refused.as_ref().is_some_and(|refused| refused.is(reply))
            }
            Self::OneOf { codes, or_nil } => *or_nil && *reply == Reply::Nil || codes.iter().any(|code| is_error(code)),
            Self::OrTryAgain(expected) => expected.is(reply) || is_error("TRYAGAIN"),
            Self::Shown(shown) => shown.is(reply),
            Self::Listed(listed) => listed.is(reply),
            Self::Anything => !matches!(reply, Reply::Error(_)),
        }
    }
}
