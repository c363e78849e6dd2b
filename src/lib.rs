//! **redis-lock**: locks as a native thing of Redis and Valkey.
//!
//! A loadable server module in three layers:
//!
//! - [`core`] decides who holds a lock and who is next, with no server in sight;
//! - [`command`] turns words into typed requests;
//! - `host` is the only layer that talks to the server, and the only one with unsafe code.
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

#[cfg(all(feature = "module", not(all(target_os = "linux", target_pointer_width = "64"))))]
compile_error!("the module needs 64-bit Linux: timer descriptors, and pointers that hold a handle");

#[cfg(feature = "module")]
mod host;
