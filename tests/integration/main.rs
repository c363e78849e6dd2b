//! Tests on real servers of what a transcript of clients (tests/scenarios) cannot say. Each test has servers of its own, so all
//! of them run in parallel. Most of the time they wait, so there may be more of them than cores (`RUST_TEST_THREADS`). The tests
//! that need the machine for themselves are in tests/alone.

mod closed_connections;
mod cluster;
mod compat;
mod contended_leases;
mod documents;
mod io_threads;
mod lost_timer;
mod operations;
mod panics;
mod replication;
mod security;
