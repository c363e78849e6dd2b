//! The server side: everything that crosses the module API, and all unsafe code.
//!
//! The server calls in through trampolines (commands, timers, events, blocked clients), always on its main thread, and
//! a call into the server may come back through another of them before it returns. So the module's state is borrowed
//! only inside [`state::with`], whose closures never call the server, and nothing that was read from a key outlives
//! the next write to it.
//!
//! Effects always run in this order: write and expiry, replication, notification, unblocking, reply.

#![allow(unsafe_code)]

#[macro_use]
mod api;
mod alarm;
mod allocator;
mod audience;
mod blocked;
mod clock;
mod config;
mod context;
mod effect;
mod events;
mod execute;
mod fence;
mod guard;
mod handover;
mod info;
mod inspect;
mod key;
mod load;
mod permission;
mod pump;
mod register;
mod remembered;
mod renewal;
mod reply;
mod state;
mod takeback;
mod text;
