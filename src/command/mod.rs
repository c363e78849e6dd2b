//! The commands: the grammar of their arguments, and their replies.
//!
//! Each file parses the arguments of a command, which are any bytes, into a typed request. Nothing here uses the server. The core
//! decides on a request, and the host carries out the decision.

#![forbid(unsafe_code)]

mod acquire;
mod extend;
mod fence;
mod info;
pub mod options;
mod queues;
mod reenter;
mod release;
mod reply;
mod share;
mod slow_log;
mod values;
mod waiters;

pub use acquire::Acquire;
pub use extend::Extend;
pub use fence::Fence;
pub use info::Info;
pub use queues::Queues;
pub use reenter::Reenter;
pub use release::Release;
pub use reply::Reply;
pub use share::Share;
pub use slow_log::SlowLogRequest;
pub use waiters::Waiters;

use options::{Allowed, OPTION_TABLE, Options};

use crate::core::{ClientId, Error, LeaseEnd, Lock, MAX_IDENTITY_LEN, Request, UnixMs, Waiter};

/// A command that changes one lock, on behalf of one caller. Its arguments begin with the key and the caller's token or owner.
pub trait LockCommand {
    /// The name of the command, in lower case as the server reports it.
    const NAME: &str;

    /// The options that the command takes.
    const OPTIONS: Allowed;

    /// Returns the request with these options.
    ///
    /// # Errors
    ///
    /// The error to reply with if an option is missing.
    fn request(options: &Options) -> Result<Parsed, Error>;

    /// Parses the arguments after the caller's identity.
    ///
    /// # Errors
    ///
    /// The error to reply with if an argument is invalid.
    #[inline(always)]
    fn parse<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Parsed, Error> {
        Self::request(&Options::parse(words, Self::OPTIONS)?)
    }
}

/// The parsed arguments of a [`LockCommand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    pub request: Request,
    /// The number of the argument with the channel to be notified on, counted after the caller's identity. Then the request waits
    /// and has a lease.
    pub notify: Option<usize>,
}

/// A request that reads one lock. Its arguments begin with the key.
pub trait Inspection: Sized {
    /// The name of the command, in lower case as the server reports it.
    const NAME: &str;

    /// The options that the command takes.
    const OPTIONS: Allowed;

    /// Returns the request with these options.
    fn request(options: &Options) -> Self;

    /// Parses the arguments after the key.
    ///
    /// # Errors
    ///
    /// The error to reply with if an argument is invalid.
    fn parse<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self::request(&Options::parse(words, Self::OPTIONS)?))
    }

    /// Returns the reply.
    fn report<'r>(
        &self,
        view: LockView<'r, impl LeaseEnd, impl Iterator<Item = (Waiter<'r>, Requester<'r>)>>,
    ) -> Reply<'r>;
}

/// The client of a waiting request.
#[derive(Clone, Copy)]
pub struct Requester<'r> {
    pub client: ClientId,
    /// The channel on which the client is notified of the end of the wait, or `None` if the client is blocked.
    pub channel: Option<&'r [u8]>,
}

/// The data of a lock for an [`Inspection`].
pub struct LockView<'r, L, W> {
    pub lock: &'r Lock<'r, L>,
    pub now: UnixMs,
    /// The connection of the lock's session, if it is open.
    pub session: Option<ClientId>,
    /// The number of waiting requests.
    pub waiting: usize,
    /// The rest of the recovery period in milliseconds, or 0. Until its end, a lock is granted only to its present holder.
    pub recovery_ms: i64,
    /// The waiters with their clients, in the order of their turns.
    pub waiters: W,
}

/// The commands with options, and the options of each.
pub const OPTIONS_OF: [(&str, Allowed); 8] = [
    (Acquire::NAME, Acquire::OPTIONS),
    (Reenter::NAME, Reenter::OPTIONS),
    (Share::NAME, Share::OPTIONS),
    (Release::NAME, Release::OPTIONS),
    (Extend::NAME, Extend::OPTIONS),
    (Info::NAME, Info::OPTIONS),
    (Waiters::NAME, Waiters::OPTIONS),
    (Queues::NAME, Queues::OPTIONS),
];

/// Returns each option word of each command with options: `("lock.acquire", "PX")`.
pub fn words_of_commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPTIONS_OF.into_iter().flat_map(|(command, options)| {
        let rows = OPTION_TABLE.iter().filter(move |row| options.contains(row.flag));
        rows.map(move |row| (command, row.word.to_str().unwrap_or_default()))
    })
}

/// Returns `identity` if it can be a token or owner.
///
/// # Errors
///
/// [`Error::IdentityLength`] if it is empty or longer than [`MAX_IDENTITY_LEN`].
pub fn check_identity(identity: &[u8]) -> Result<&[u8], Error> {
    if (1..=MAX_IDENTITY_LEN).contains(&identity.len()) { Ok(identity) } else { Err(Error::IdentityLength) }
}
