//! The client libraries that people lock with, and the programs of docs/guides.

mod fred;
mod fred_in_slices;
pub mod interop;
mod losing;
mod multiplexed;
mod packages;
mod patience;
mod recipes;
mod redis_rs;
mod redis_rs_in_slices;
mod tracking;
