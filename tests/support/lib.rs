//! What every integration test needs, and the benchmark too: a server of its own with the module in it, connections that
//! speak raw commands, clients that wait, and conditions with a deadline in place of sleeps.
//!
//! `SERVER` names the server binary (else redis-server or valkey-server from PATH) and `MODULE` the module (else the
//! release build of this package). `SERVER_CONFIG` has lines, separated by semicolons, for the configuration of each server. With
//! `SERVER_END=orderly` servers are asked to end, and killed only if they do not.
//! `SERVER_RUNNER` is a program that runs each server, with arguments, in which `{}` is the server's folder; and
//! `PATIENCE_FACTOR` says how much slower that makes them. If it is valgrind, it writes errors into files `memcheck.*` there.

mod aof;
mod client;
mod conditions;
mod flavour;
mod library;
mod locks;
mod memcheck;
mod reply;
mod server;
mod setup;
mod waiter;

pub mod beat;
pub mod cluster;
pub mod connection;
pub mod listener;
pub mod migration;
pub mod network;
pub mod one_node;
pub mod parallel;
pub mod process;
pub mod proxy;
pub mod python;
pub mod raw;
pub mod replicas;
pub mod scenario;
pub mod sentinel;
pub mod staggered;
pub mod stalls;
pub mod ways;

pub use aof::{Aof, lines_of};
pub use client::{Client, Protocol, bytes_of};
pub use conditions::{OBSERVATION, PATIENCE, eventually, happens_within, never_within, now_ms, now_us, patient};
pub use flavour::{Flavour, Program};
pub use library::Library;
pub use locks::{field, info_lock, remaining_ms, waiters_of};
pub use reply::Reply;
pub use server::{Ended, Server};
pub use setup::{Setup, free_port, module_beside, module_under_test, module_with_names, repository, server_under_test};
pub use waiter::Waiter;
pub use ways::{LOST, Waiting, Way};
