//! The commands: the grammar of their arguments, and the functions of the core that decide.
//!
//! Each file parses the arguments of a command, which are any bytes, into a typed request. Nothing here uses the server. The host
//! runs a request after all arguments were parsed.

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
pub mod table;
mod waiters;

pub use acquire::Acquire;
pub use extend::Extend;
pub use fence::Fence;
pub use info::Info;
pub use options::BlockTimeout;
pub use queues::Queues;
pub use reenter::Reenter;
pub use release::Release;
pub use reply::Reply;
pub use share::Share;
pub use waiters::Waiters;

use options::Options;

use crate::core::{ClientId, Decision, Error, Kind, Lease, LeaseEnd, Limit, Lock, MAX_IDENTITY_LEN, UnixMs, Waiter};

/// A request to change one lock, on behalf of one caller. Its arguments begin with the key and the caller's token or
/// owner.
pub trait Request: Sized {
    /// The name of the command, in lower case as the server reports it.
    const NAME: &str;

    /// Parses the arguments after the caller's identity.
    ///
    /// # Errors
    ///
    /// The error to reply with if an argument is invalid.
    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error>;

    /// Checks the requested lease against the longest one that a lock may have.
    ///
    /// # Errors
    ///
    /// [`Error::LeaseLimit`] if it is longer, or missing although the request may take the lock.
    fn check_lease(&self, longest: Lease) -> Result<(), Error>;

    /// Returns the decision on the request.
    ///
    /// # Errors
    ///
    /// The error to reply with if the request cannot be granted, now or later.
    fn decide(&self, lock: &Lock<'_, impl LeaseEnd>, caller: &[u8], now: UnixMs) -> Result<Decision, Error>;

    /// Returns the kind of the lock and the lease to renew, if the request asks for a session.
    fn session(&self) -> Option<(Kind, Lease)> {
        None
    }

    /// Returns whether the caller's waits for the lock are withdrawn. If there are any, the request succeeds.
    fn withdraws(&self, _outcome: &Result<Decision, Error>) -> bool {
        false
    }

    /// Returns how to wait while the lock is held, or `None` to reply with nil.
    fn wait(&self) -> Option<WaitOptions> {
        None
    }
}

/// Refuses a lease that is longer than `longest`, if one is given.
fn check_given_lease(lease: Option<Lease>, longest: Lease) -> Result<(), Error> {
    if lease.is_none_or(|lease| lease <= longest) { Ok(()) } else { Err(Error::LeaseLimit) }
}

/// Refuses a lease that is longer than `longest`, or missing.
fn check_needed_lease(lease: Option<Lease>, longest: Lease) -> Result<(), Error> {
    lease.ok_or(Error::LeaseLimit).and_then(|lease| check_given_lease(Some(lease), longest))
}

/// Refuses a session for a lock that is held without a lease. Nothing would free the lock if the server failed.
fn check_session(
    session: bool,
    lock: &Lock<'_, impl LeaseEnd>,
    caller: &[u8],
    decision: Decision,
) -> Result<Decision, Error> {
    let granted = matches!(decision, Decision::Done { .. });
    let without_lease = || lock.held_by(caller).is_ok_and(|holder| holder.lease_end.get().is_none());
    if session && granted && without_lease() { Err(Error::NoLease) } else { Ok(decision) }
}

/// The options of a request that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitOptions {
    pub kind: Kind,
    pub lease: Option<Lease>,
    /// The maximum number of shares.
    pub limit: Option<Limit>,
    /// Whether the request asks for a session. Then there is a lease.
    pub session: bool,
    pub timeout: BlockTimeout,
    /// The number of the argument with the channel to be notified on, counted after the caller's identity.
    pub notify: Option<usize>,
}

impl WaitOptions {
    /// Returns the options of a request for a lock of this kind, or `None` if it does not wait.
    fn of(kind: Kind, options: &Options) -> Option<Self> {
        let Options { lease, limit, session, notify, block, .. } = *options;
        debug_assert!(lease.is_some() || !session && notify.is_none(), "SESSION and NOTIFY need a lease");
        debug_assert!(limit.is_none() || kind == Kind::Shared, "only a share has a limit");
        Some(Self { kind, lease, limit, session, timeout: block?, notify })
    }
}

/// A request that reads one lock. Its arguments begin with the key.
pub trait Inspection: Sized {
    /// The name of the command, in lower case as the server reports it.
    const NAME: &str;

    /// Parses the arguments after the key.
    ///
    /// # Errors
    ///
    /// The error to reply with if an argument is invalid.
    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error>;

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
    /// The open connections of the lock's session.
    pub session: Vec<ClientId>,
    /// The number of waiting requests.
    pub waiting: usize,
    /// The rest of the recovery period in milliseconds, or 0. Until its end, a lock is granted only to its present holder.
    pub recovery_ms: i64,
    /// The waiters with their clients, in the order of their turns.
    pub waiters: W,
}

/// Returns `identity` if it can be a token or owner.
///
/// # Errors
///
/// [`Error::IdentityLength`] if it is empty or longer than [`MAX_IDENTITY_LEN`].
pub fn check_identity(identity: &[u8]) -> Result<&[u8], Error> {
    if (1..=MAX_IDENTITY_LEN).contains(&identity.len()) { Ok(identity) } else { Err(Error::IdentityLength) }
}
