//! Tests of modules in a simulated server.

#![cfg(feature = "simulated")]

mod channels;
mod clients;
mod crowd;
mod fairness;
mod growth;
mod idle;
mod module;
mod refusing;
mod renewals;
mod returning;
mod sessions;
mod single_commands;
mod slow_log;
#[path = "../modules/witness/witness/mod.rs"]
mod witness;
