//! The measurements, one in each file.

mod contention;
mod handovers;
mod instructions;
mod lease_end;
mod memory;
mod overhead;
mod packages;
mod stretches;
mod throughput;

use crate::report::{Effort, Section};

/// A name, a question, and the measurement that answers it.
type Entry = (&'static str, &'static str, fn(Effort) -> Section);

/// All sections, in their order.
pub const SECTIONS: [Entry; 9] = [
    ("instructions", "What does the server do for a lock that no other client wants?", instructions::measure),
    ("overhead", "What does the module cost the commands of other clients?", overhead::measure),
    ("stretches", "How long is one batch of background work when very much is due?", stretches::measure),
    ("throughput", "How many locks without contention are there in a second?", throughput::measure),
    ("handovers", "How often does a lock go from one client to the next in a second?", handovers::measure),
    ("lease_end", "How late does the next client get a lock whose lease has ended?", lease_end::measure),
    ("memory", "How much memory do a lock and a waiter take?", memory::measure),
    ("packages", "How do the published packages compare on one lock?", packages::measure),
    (
        "contention",
        "How soon and how fairly do 64 clients get 1,000 locks of different popularity?",
        contention::measure,
    ),
];
