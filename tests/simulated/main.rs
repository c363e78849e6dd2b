//! Tests of modules in a simulated server.

#![cfg(feature = "simulated")]

mod cached_time;
mod channels;
mod clients;
mod copies;
mod crowd;
mod facts;
mod fairness;
mod grace;
mod growth;
mod idle;
mod messages;
mod module;
mod refusing;
mod renewals;
mod returning;
mod served;
mod sessions;
mod shares;
mod single_commands;
mod slow_log;
mod stage;
#[path = "../modules/witness/witness/mod.rs"]
mod witness;
