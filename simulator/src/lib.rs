//! Simulated servers with the module in them, histories of what happens to them, and a checker of the contract.
//!
//! A [`step::History`] is chosen by a [`seed`], or made of any bytes; [`play::Play`] carries it out.

mod checker;
#[cfg(test)]
mod found;
pub mod play;
pub mod request;
pub mod seed;
pub mod step;
pub mod strategy;
pub mod tally;
