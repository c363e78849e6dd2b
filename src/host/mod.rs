//! The host: executes requests, blocks waiters, grants locks, renews sessions and carries out revocations.
//!
//! There is no unsafe code here, and no code for differences between servers. Both are in the layer `server`, which calls the
//! host through [`Module`](crate::server::Module), implemented in `locks.rs`. The module's state is lent to closures
//! (`with_state`), in which the compiler allows no call by which the server may call back. After such a call, the state is read
//! again.
//!
//! Effects always run in this order: write and expiry, replication, notification, unblocking, reply.

#![forbid(unsafe_code)]

mod alarm;
mod commands;
mod conditions;
mod granting;
mod info_section;
mod keys;
mod load_log;
mod locks;
mod replies;
mod settings;
mod state;
mod work;

pub use state::Locks;
#[cfg(feature = "simulated")]
pub use state::{entry_count, set_batch, take_slow_log, view};
