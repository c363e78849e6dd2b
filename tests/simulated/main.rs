//! Modules in a simulated server.

#![cfg(feature = "simulated")]

mod channels;
mod crowd;
mod facts;
mod growth;
mod module;
mod returning;
mod served;
mod stage;
#[path = "../modules/witness/witness/mod.rs"]
mod witness;
