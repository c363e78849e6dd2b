use std::io;

use crate::redis::{ErrorKind, RedisError};

/// Why a lock was not acquired, or is not held any more. The text is the name of the lock.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock was not free within the time of [`Lock::wait`](crate::Lock::wait). The server has said so.
    #[error("lock {0:?} was not free in time")]
    Timeout(String),
    /// The lock is not held any more: its lease has expired, or another client has removed it.
    #[error("lock {0:?} is lost")]
    Lost(String),
    /// The server has not loaded the module redis-lock, which has the feature.
    #[error("lock {0:?}: {1} needs the server module redis-lock")]
    ModuleNeeded(String, &'static str),
    /// As many requests wait for the lock as [`Lock::max_waiters`](crate::Lock::max_waiters) or the server allows.
    #[error("lock {0:?}: too many wait for it")]
    QueueFull(String),
    /// The server has refused a command.
    #[error("lock {0:?}: {1}")]
    Server(String, #[source] RedisError),
    /// The server cannot be reached. It may have executed the last command or not. The name is empty for the first
    /// connection of [`Locks`](crate::Locks).
    #[error("lock {0:?}: the server cannot be reached: {1}")]
    Connection(String, #[source] RedisError),
    /// An argument is out of range. Nothing was sent.
    #[error("lock {0:?}: {1}")]
    Argument(String, &'static str),
}

/// The error of a connection on which the server has not replied in time.
pub(crate) fn no_reply() -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, "no reply").into()
}

/// Error codes that say that the token does not hold the lock.
const NOT_HELD: &str = "NOTHELD NOTOWNER WRONGTYPE OTHERFORM";
/// Error codes of a server that cannot decide at the moment.
const TRY_AGAIN: &str = "ASK BUSY CLUSTERDOWN LOADING MASTERDOWN MISCONF MOVED NOREPLICAS READONLY REPLACED TRYAGAIN";

impl Error {
    pub(crate) fn new(name: &str, source: RedisError) -> Self {
        match source.kind() {
            _ if source.code() == Some("QUEUEFULL") => Self::QueueFull(name.to_owned()),
            ErrorKind::Server(_) | ErrorKind::Extension => Self::Server(name.to_owned(), source),
            _ => Self::Connection(name.to_owned(), source),
        }
    }

    /// The error if the runtime of the locks has ended.
    pub(crate) fn ended(name: &str) -> Self {
        Self::new(name, io::Error::new(io::ErrorKind::NotConnected, "the runtime of the locks has ended").into())
    }

    /// Returns whether a server has replied with one of some codes, and with a text.
    pub(crate) fn is_reply(&self, codes: &str, text: &str) -> bool {
        let Self::Server(_, source) = self else { return false };
        let (code, detail) = (source.code().unwrap_or_default(), source.detail().unwrap_or_default());
        codes.split(' ').any(|one| one == code) && detail.contains(text)
    }

    /// Returns whether the server has not loaded the module.
    pub(crate) fn is_unknown_command(&self) -> bool {
        self.is_reply("ERR", "unknown command")
    }

    /// Returns whether the server says that the connection does not listen on its channel.
    pub(crate) fn is_no_channel(&self) -> bool {
        self.is_reply("NOSUBSCRIBER", "")
    }

    /// Returns whether the same command may succeed in a moment.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Connection(..)) || self.is_reply(TRY_AGAIN, "")
    }

    /// Returns the error for a holder: [`Error::Lost`] if the token does not hold the lock.
    pub(crate) fn for_holder(self) -> Self {
        match self {
            Self::Server(ref name, _) if self.is_reply(NOT_HELD, "") => Self::Lost(name.clone()),
            error => error,
        }
    }
}
