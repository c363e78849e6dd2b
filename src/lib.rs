//! **redis-lock**: locks as a native thing of Redis and Valkey.
//!
//! A loadable server module in four layers, each of which uses only those before it in this list:
//!
//! - [`core`] decides who holds a lock and who is next, with no server in sight;
//! - [`command`] turns words into typed requests;
//! - [`server`] makes the module API safe, and knows nothing of locks;
//! - [`host`] is what a lock does to a server.
//!
//! With the feature `simulated` another layer takes the place of `server`, a simulated server, and the others cannot tell.
//!
//! `docs/design.md` says why it is built this way.

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::todo,
        clippy::unreachable,
        clippy::unwrap_used,
    )
)]
#![deny(unsafe_code)]
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod command;
pub mod core;

#[cfg(all(feature = "server", not(all(target_os = "linux", target_pointer_width = "64"))))]
compile_error!("the module needs 64-bit Linux: timer descriptors, and pointers that hold a handle");

#[cfg(any(feature = "module", feature = "simulated"))]
pub mod host;
#[cfg(all(feature = "server", not(feature = "simulated")))]
pub mod server;
#[cfg(feature = "simulated")]
#[path = "simulated/mod.rs"]
pub mod server;

#[cfg(all(feature = "module", not(feature = "simulated")))]
server::entry_points!(host::Locks);
