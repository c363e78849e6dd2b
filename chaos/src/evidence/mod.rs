//! What the clients know of the servers at each time, as far as it excuses a reply or forbids one: stalls, pauses,
//! flushes, the settings in force, and where the servers are.

mod nodes;
mod pauses;
mod settings;
mod spans;
mod stalls;

pub use nodes::Nodes;
pub use pauses::{NOTHING_IN_A_PAUSE, Pauses};
pub use settings::{InForce, SUSPENDED, is_put_off};
pub use spans::{Flushes, Spans, Suspended};
pub use stalls::{StallLog, probe_latency, starved};

use std::time::Duration;

/// The server counts whole milliseconds.
pub const ROUNDING: Duration = Duration::from_millis(2);
