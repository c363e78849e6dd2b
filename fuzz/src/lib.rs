//! The servers and the grammar that the fuzz targets need.

pub mod grammar;
pub mod live;
pub mod parts;
pub mod simulated;
mod wire;
