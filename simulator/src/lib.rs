//! Runs the module in simulated servers, and checks the contract.
//!
//! A [`step::History`] is the list of steps of a run. A [`seed`] or any bytes determine it, and [`play::Play`] runs it.

mod checker;
#[cfg(test)]
mod found;
pub mod play;
pub mod request;
pub mod seed;
pub mod step;
pub mod strategy;
pub mod tally;
