//! What it costs to wait without blocking: one connection with very many requests, whose messages come on one channel.

mod closing;
mod crowd;
mod handovers;
mod line;
mod memory;

pub use closing::measure as closing;
pub use handovers::measure as handovers;
pub use memory::measure as memory;
