//! The servers that the fuzz targets need.

pub mod live;
pub mod parts;
pub mod simulated;
mod wire;
