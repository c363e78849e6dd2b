//! The commands: what their words mean, and which rule of the core they ask.
//!
//! Each file takes the arguments behind the command name as bytes and makes a typed request of them, or an error.
//! Nothing here touches the server; the host runs a request that was parsed in full.

#![forbid(unsafe_code)]

mod acquire;
mod extend;
mod fence;
mod info;
mod options;
mod reenter;
mod release;
mod reply;
pub mod table;
mod waiters;

pub use acquire::Acquire;
pub use extend::Extend;
pub use fence::Fence;
pub use info::Info;
pub use options::BlockTimeout;
pub use reenter::Reenter;
pub use release::Release;
pub use reply::Reply;
pub use waiters::Waiters;

use crate::core::{ClientId, Decision, Error, Kind, Lease, LeaseEnd, Lock, MAX_IDENTITY_LEN, UnixMs, Waiter};

/// A request to change one lock, as one caller. Its arguments begin with the key and the caller's identity.
pub trait Request: Sized {
    /// The command in lower case, as the server reports it.
    const NAME: &str;

    /// Reads the words behind key and identity.
    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error>;

    /// What shall happen to the lock.
    fn decide(&self, lock: &Lock<'_, impl LeaseEnd>, caller: &[u8], now: UnixMs) -> Result<Decision, Error>;

    /// If the lock shall belong to the connection: as which kind, and with which lease to renew.
    fn session(&self) -> Option<(Kind, Lease)> {
        None
    }

    /// Whether the caller shall not wait for this lock any more. If it did, that is an answer, whatever the outcome.
    fn withdraws(&self, _outcome: &Result<Decision, Error>) -> bool {
        false
    }

    /// How to wait if somebody else holds the lock; `None` answers nil.
    fn wait(&self) -> Option<WaitOptions> {
        None
    }
}

/// Refuses to make a lock a session's that is held without a lease: nothing would free it should the server fail.
fn check_session(session: bool, lock: &Lock<'_, impl LeaseEnd>, decision: Decision) -> Result<Decision, Error> {
    let granted = matches!(decision, Decision::Done { .. });
    let without_lease = || matches!(lock, Lock::Held(holder) if holder.lease_end.get().is_none());
    if session && granted && without_lease() { Err(Error::NoLease) } else { Ok(decision) }
}

/// What a request that has to wait asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitOptions {
    pub kind: Kind,
    pub lease: Option<Lease>,
    /// The lock shall belong to the connection; then there is a lease.
    pub session: bool,
    pub timeout: BlockTimeout,
}

/// A request to look at one lock. Its arguments begin with the key.
pub trait Inspection: Sized {
    /// The command in lower case, as the server reports it.
    const NAME: &str;

    /// Reads the words behind the key.
    fn parse<'a>(options: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error>;

    /// What there is to see.
    fn report<'r>(&self, view: LockView<'r, impl LeaseEnd, impl Iterator<Item = (Waiter<'r>, ClientId)>>) -> Reply<'r>;
}

/// Everything an onlooker is shown of a lock.
pub struct LockView<'r, L, W> {
    pub lock: &'r Lock<'r, L>,
    pub now: UnixMs,
    /// The connections that the lock belongs to.
    pub session: Vec<ClientId>,
    /// How many requests wait.
    pub waiting: usize,
    /// The waiters, first in line first.
    pub waiters: W,
}

/// A token or owner, if it is as long as one may be.
pub fn check_identity(identity: &[u8]) -> Result<&[u8], Error> {
    if (1..=MAX_IDENTITY_LEN).contains(&identity.len()) { Ok(identity) } else { Err(Error::IdentityLength) }
}
