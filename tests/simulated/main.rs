//! Tests of the module in a simulated server, for what clients cannot choose or see: moments between two iterations of the event
//! loop, failures of the server, and the work of an iteration.

#![cfg(feature = "simulated")]

mod channels;
mod fairness;
mod growth;
mod idle;
mod moments;
mod refusing;
mod returning;
mod single_commands;
mod stage;
mod suspension;
#[path = "../modules/witness/witness/mod.rs"]
mod witness;
