//! The servers on which scenarios are played.

#[cfg(not(feature = "simulated"))]
mod pair;
#[cfg(not(feature = "simulated"))]
mod pool;
#[cfg(not(feature = "simulated"))]
mod real;
#[cfg(feature = "simulated")]
mod served;
#[cfg(feature = "simulated")]
mod simulated;
#[cfg(feature = "simulated")]
#[path = "../../modules/witness/witness/mod.rs"]
mod witness;

#[cfg(not(feature = "simulated"))]
pub use real::{end, play};
#[cfg(feature = "simulated")]
pub use simulated::{end, play};

/// Whether the servers are simulated.
pub const IS_SIMULATED: bool = cfg!(feature = "simulated");
