//! The errors of requests and their texts.

use std::borrow::Cow;

/// The reason why a request is refused. A request that ends with an error has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    NotHeld,
    NotOwner,
    /// The caller holds the lock alone and asks for a share of it, or holds a share and asks for the lock alone.
    OtherForm,
    /// The lock never expires, so it has no lease to set.
    NoLease,
    /// The lease exceeds `lock.max-lease-ms`, or is missing while that is set.
    LeaseLimit,
    /// The lease would be lengthened shortly after a stall, or while replicas do not respond. Another server may be the master.
    MayBeReplaced,
    /// The lease would be lengthened while the previous master may still grant the lock when the lease ends there.
    JustBegun,
    /// The number of waiting requests has reached `lock.max-waiters`.
    QueueFull,
    /// As many requests wait for this lock as the MAXWAITERS of the request allows.
    TooManyWait,
    /// A later request with the token has taken the place of this one, which waited.
    Replaced,
    /// The value of the key is not a lock.
    WrongType,
    /// `HOLD n` is neither the present number of holds nor the next one.
    HoldMismatch,
    /// The number of holds or the counter has reached its maximum.
    Overflow,
    SameKey,
    Arity,
    /// SESSION was given without EX or PX.
    SessionNeedsLease,
    /// GRACE was given without SESSION.
    GraceNeedsSession,
    /// MAXWAITERS was given without BLOCK.
    MaxWaitersNeedsBlock,
    /// SESSION was given in a script or in a call by another module, where the client has no connection.
    SessionInScript,
    /// SESSION was given on a replica, which does not own its keys.
    SessionOnReplica,
    /// The number of sessions has reached `lock.max-sessions`.
    SessionFull,
    /// NOTIFY was given without BLOCK or without a lease.
    NotifyNeedsWait,
    /// NOTIFY was given in a script or in a call by another module, where the client has no connection.
    NotifyInScript,
    /// NOTIFY was given for a token with a space. A message separates the token from the key by a space.
    TokenWithSpace,
    /// The channel of NOTIFY is empty or longer than [`MAX_CHANNEL_LEN`](super::MAX_CHANNEL_LEN).
    ChannelLength,
    /// The user has no permission for the channel of NOTIFY.
    NoRightToChannel,
    /// The channel of NOTIFY has no subscriber on this server.
    NoSubscriber,
    /// An option is unknown, repeated or missing, or contradicts another one.
    Syntax,
    NotAnInteger,
    /// A COUNT, HOLD, LIMIT or MAXWAITERS is less than 1.
    NotPositive,
    /// The COUNT of LOCK.QUEUES exceeds [`MAX_QUEUES_SHOWN`](super::MAX_QUEUES_SHOWN).
    TooManyQueues,
    /// The count of LOCK.SLOWLOG GET is less than -1 or no integer.
    CountTooLow,
    UnknownSubcommand,
    /// A lease or GRACE is zero, negative or too long to add to the clock, or a lease is too short for a session or its GRACE.
    InvalidExpire,
    TimeoutNotAnInteger,
    TimeoutNegative,
    /// A BLOCK exceeds [`MAX_DURATION_MS`](super::MAX_DURATION_MS).
    TimeoutOutOfRange,
    /// A token or owner is empty or longer than [`MAX_IDENTITY_LEN`](super::MAX_IDENTITY_LEN).
    IdentityLength,
}

impl Error {
    /// Returns the text of the error reply, which begins with the error code.
    ///
    /// `command` is the name in lower case. A text of the server for the same mistake is used. No text contains arguments.
    pub fn text(self, command: &str) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::NotHeld => "NOTHELD The lock is not held",
            Self::NotOwner => "NOTOWNER The lock is held by another token",
            Self::OtherForm => "OTHERFORM The token already holds the lock in another form",
            Self::NoLease => "NOLEASE The lock has no lease and is held until it is released",
            Self::LeaseLimit => "LEASELIMIT A lease of at most lock.max-lease-ms milliseconds is required",
            Self::MayBeReplaced => "TRYAGAIN This server may no longer be the master, see lock.recovery-ms",
            Self::JustBegun => "TRYAGAIN The previous master may still grant locks, see lock.recovery-ms",
            Self::QueueFull => "QUEUEFULL Too many requests are waiting, see lock.max-waiters",
            Self::TooManyWait => "QUEUEFULL The queue of this lock has reached MAXWAITERS",
            Self::Replaced => "REPLACED A later request with the same token took this place in the queue",
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::HoldMismatch => "HOLDMISMATCH This is not the next hold",
            Self::Overflow => "ERR increment or decrement would overflow",
            Self::SameKey => "ERR the counter and the lock must be different keys",
            Self::SessionNeedsLease => "ERR SESSION requires a lease, EX or PX",
            Self::GraceNeedsSession => "ERR GRACE requires SESSION",
            Self::MaxWaitersNeedsBlock => "ERR MAXWAITERS requires BLOCK",
            Self::SessionInScript => "ERR SESSION is not allowed in scripts or in calls by other modules",
            Self::SessionOnReplica => "ERR SESSION is not allowed on a replica",
            Self::SessionFull => "SESSIONFULL Too many sessions, see lock.max-sessions",
            Self::NotifyNeedsWait => "ERR NOTIFY requires BLOCK and a lease, EX or PX",
            Self::NotifyInScript => "ERR NOTIFY is not allowed in scripts or in calls by other modules",
            Self::TokenWithSpace => "ERR a token with NOTIFY must not contain a space",
            Self::ChannelLength => "ERR a channel must be 1 to 1024 bytes long",
            Self::NoRightToChannel => "NOPERM No permissions to access a channel",
            Self::NoSubscriber => "NOSUBSCRIBER No client of this server is subscribed to this channel",
            Self::Syntax => "ERR syntax error",
            Self::NotAnInteger => "ERR value is not an integer or out of range",
            Self::NotPositive => "ERR value is out of range, must be positive",
            Self::TooManyQueues => "ERR value is out of range, must be at most 1000",
            Self::CountTooLow => "ERR count should be greater than or equal to -1",
            Self::UnknownSubcommand => "ERR unknown subcommand, try GET, LEN or RESET",
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
    fn error_text_states_enforced_token_length() {
        assert!(Error::IdentityLength.text("").contains(&crate::core::MAX_IDENTITY_LEN.to_string()));
    }

    #[test]
    fn error_text_states_enforced_queue_limit() {
        assert!(Error::TooManyQueues.text("").contains(&crate::core::MAX_QUEUES_SHOWN.to_string()));
    }
}
