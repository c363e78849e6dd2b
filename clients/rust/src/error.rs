/// Why a lock was not acquired, or is not held any more. The first text is the name of the lock; that of the first connection of
/// [`Locks`](crate::Locks) is empty.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock was not free within the time of [`Lock::wait`](crate::Lock::wait). The server has said so.
    #[error("{}not free in time", of(.0))]
    Timeout(String),
    /// The lock is not held any more: its lease has expired, or another client has removed it.
    #[error("{}lost", of(.0))]
    Lost(String),
    /// The server has not loaded the module redis-lock, which has the feature.
    #[error("{}{feature} needs the server module redis-lock", of(.0), feature = .1)]
    ModuleNeeded(String, &'static str),
    /// As many requests wait for the lock as [`Lock::max_waiters`](crate::Lock::max_waiters) or the server allows.
    #[error("{}too many wait for it", of(.0))]
    QueueFull(String),
    /// The server has refused a command, with this text. Its first word is the code.
    #[error("{}the server refuses: {reason}", of(.0), reason = .1)]
    Server(String, String),
    /// The server cannot be reached, for this reason. It may have executed the last command or not.
    #[error("{}the server cannot be reached: {reason}", of(.0), reason = .1)]
    Connection(String, String),
    /// An argument is out of range. Nothing was sent.
    #[error("{}{reason}", of(.0), reason = .1)]
    Argument(String, &'static str),
}

/// Returns the start of a text about a lock.
fn of(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("lock {name:?}: ") }
}

/// The failure of a command, with the text of the server, or the reason why there is none.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Server(String),
    Connection(String),
}

/// The failure of a connection on which the server has not replied in time.
pub(crate) fn no_reply() -> Fault {
    Fault::Connection("no reply".to_owned())
}

/// Error codes that say that the token does not hold the lock.
const NOT_HELD: &str = "NOTHELD NOTOWNER WRONGTYPE OTHERFORM";
/// Error codes of a server that cannot decide at the moment.
const TRY_AGAIN: &str = "ASK BUSY CLUSTERDOWN LOADING MASTERDOWN MISCONF MOVED NOREPLICAS READONLY REPLACED TRYAGAIN";

impl Error {
    pub(crate) fn new(name: &str, fault: Fault) -> Self {
        match fault {
            Fault::Server(text) if code(&text) == "QUEUEFULL" => Self::QueueFull(name.to_owned()),
            Fault::Server(text) => Self::Server(name.to_owned(), text),
            Fault::Connection(text) => Self::Connection(name.to_owned(), text),
        }
    }

    /// The error if the runtime of the locks has ended.
    pub(crate) fn ended(name: &str) -> Self {
        Self::Connection(name.to_owned(), "the runtime of the locks has ended".to_owned())
    }

    /// Returns whether a server has replied with one of some codes, and with a text.
    pub(crate) fn is_reply(&self, codes: &str, text: &str) -> bool {
        let Self::Server(_, reply) = self else { return false };
        codes.split(' ').any(|one| one == code(reply)) && reply.contains(text)
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

fn code(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}
