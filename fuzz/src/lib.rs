//! What the fuzz targets have beside the fuzzer's bytes.

pub mod grammar;
pub mod live;
pub mod parts;
pub mod simulated;
mod wire;
