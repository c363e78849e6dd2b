//! Modules in a simulated server.

#![cfg(feature = "simulated")]

mod channels;
mod facts;
mod growth;
mod module;
mod served;
mod stage;
#[path = "../modules/witness/witness/mod.rs"]
mod witness;
