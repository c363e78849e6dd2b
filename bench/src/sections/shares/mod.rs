//! Shares of a lock: what they cost the server, how semaphores hand on their permits, and readers that are let in together.

mod handovers;
mod instructions;
mod readers;

pub use handovers::measure as handovers;
pub use instructions::measure as instructions;
pub use readers::measure as readers;
