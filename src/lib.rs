//! **redis-lock**: native locks for Redis and Valkey.
//!
//! This is a loadable server module in four layers. Each of them uses only those before it in this list:
//!
//! - [`core`] decides which client holds a lock and which is next, without a server;
//! - [`command`] parses arguments into typed requests;
//! - [`server`] makes the module API safe, and knows nothing of locks;
//! - [`host`] carries out the decisions of the core on a server.
//!
//! With the feature `simulated`, a simulated server replaces the layer `server`. The other layers are the same.
//!
//! `docs/design.md` explains the design.

// The lints of all packages are in Cargo.toml. These are for the module only, and not for its tests.
#![cfg_attr(
    not(test),
    deny(
        // After a panic, every client that waits gets an error, and the module forgets its state.
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::string_slice,
        clippy::unreachable,
        clippy::unwrap_used,
        // This would end the server.
        clippy::exit,
        // A server that runs in the background has no output. What an operator must know goes into its log.
        clippy::print_stderr,
        clippy::print_stdout,
    )
)]

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
