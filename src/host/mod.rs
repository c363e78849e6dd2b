//! What a lock does to a server: execute a request, hand a lock over, let clients wait, renew sessions, take locks back.
//!
//! Nothing here is unsafe, and nothing knows how servers differ: that is the layer `server`, which calls in through
//! [`Module`](crate::server::Module), implemented in `module.rs`. The module's state is lent to closures (`state::with`) that
//! do not call the server, because the server may call back, and is looked at again after each call that can.
//!
//! Effects always run in this order: write and expiry, replication, notification, unblocking, reply.

#![forbid(unsafe_code)]

mod background;
mod clients;
mod commands;
mod effect;
mod execute;
mod fence;
mod grants;
mod handover;
mod info;
mod inspect;
mod lock_handles;
mod lock_key;
mod module;
mod overdue;
mod permission;
mod renewal;
mod reply;
mod revocation;
mod settings;
mod state;
mod timer;
mod waiting;

pub use state::Locks;
