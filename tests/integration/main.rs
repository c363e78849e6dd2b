//! The integration tests: each has servers of its own, so that all of them run side by side. Most of the time they wait,
//! and there may be far more of them at once than cores (`RUST_TEST_THREADS`). Those that need the machine to themselves
//! are in tests/alone.

mod cluster;
mod compat;
mod contract;
mod documents;
mod notify;
mod operations;
mod panics;
mod recovery;
mod replication;
mod security;
mod sessions;
mod shares;
mod waiting;
mod waking;
