//! Every way a request can be refused, with the words the client sees.

use std::borrow::Cow;

/// Why a request is refused. Nothing has been changed when one of these is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nobody holds the lock.
    NotHeld,
    /// Somebody else holds it.
    NotOwner,
    /// The lock never expires, so there is no lease to set.
    NoLease,
    /// As many requests wait as the operator allows.
    QueueFull,
    /// The key holds something that is not a lock.
    WrongType,
    /// The number of a hold is neither the present one nor the one before it.
    HoldMismatch,
    /// A number of holds or a counter is at its end.
    Overflow,
    /// The counter of a lock is the lock.
    SameKey,
    /// Too few or too many arguments.
    Arity,
    /// SESSION without EX or PX.
    SessionNeedsLease,
    /// SESSION where the client is a stand-in, in a script or a call by another module.
    SessionInScript,
    /// SESSION on a replica, whose keys are its master's.
    SessionOnReplica,
    /// As many sessions as the operator allows.
    SessionFull,
    /// An unknown, repeated, contradicting or missing word.
    Syntax,
    /// A number that is not one.
    NotAnInteger,
    /// A COUNT or HOLD below one.
    NotPositive,
    /// A lease that is zero, negative, beyond the calendar, or too short for a session.
    InvalidExpire,
    /// A BLOCK that is not a number.
    TimeoutNotAnInteger,
    /// A BLOCK below zero.
    TimeoutNegative,
    /// A BLOCK beyond the calendar.
    TimeoutOutOfRange,
    /// A token or owner that is empty or too long.
    IdentityLength,
}

impl Error {
    /// The error as the client reads it. `command` is the lower-case command name. Where the server has words of its
    /// own for the same mistake, they are used. What the caller sent is never repeated.
    pub fn text(self, command: &str) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::NotHeld => "NOTHELD Nobody holds this lock",
            Self::NotOwner => "NOTOWNER Somebody else holds this lock",
            Self::NoLease => "NOLEASE This lock has no lease: it is held until it is released",
            Self::QueueFull => "QUEUEFULL Too many requests wait already, see lock.max-waiters",
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::HoldMismatch => "HOLDMISMATCH This is not the hold that comes next",
            Self::Overflow => "ERR increment or decrement would overflow",
            Self::SameKey => "ERR the counter must be another key than the lock",
            Self::SessionNeedsLease => "ERR a session needs a lease, EX or PX",
            Self::SessionInScript => "ERR a session is not allowed in scripts and calls by other modules",
            Self::SessionOnReplica => "ERR a session is not allowed on a replica",
            Self::SessionFull => "SESSIONFULL Too many sessions already, see lock.max-sessions",
            Self::Syntax => "ERR syntax error",
            Self::NotAnInteger => "ERR value is not an integer or out of range",
            Self::NotPositive => "ERR value is out of range, must be positive",
            Self::TimeoutNotAnInteger => "ERR timeout is not an integer or out of range",
            Self::TimeoutNegative => "ERR timeout is negative",
            Self::TimeoutOutOfRange => "ERR timeout is out of range",
            Self::IdentityLength => "ERR a token must be 1 to 1024 bytes long",
            Self::Arity => return format!("ERR wrong number of arguments for '{command}' command").into(),
            Self::InvalidExpire => return format!("ERR invalid expire time in '{command}' command").into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stated_length_of_a_token_is_the_enforced_one() {
        assert!(Error::IdentityLength.text("").contains(&crate::core::MAX_IDENTITY_LEN.to_string()));
    }
}
