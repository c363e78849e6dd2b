//! The measurements: each answers one question, in one file or folder.

mod cost;
mod handovers;
mod instructions;
mod lease_end;
mod memory;
mod notify;
mod overhead;
pub mod packages;
mod profile;
mod shares;
mod stretches;
mod throughput;
mod waking;

use crate::section::{Effort, Section};

type Measure = fn(Effort) -> Section;

/// A question, by the name of the section that answers it.
pub struct Question {
    pub name: &'static str,
    pub text: &'static str,
    pub measure: Measure,
}

const fn asks(name: &'static str, text: &'static str, measure: Measure) -> Question {
    Question { name, text, measure }
}

/// Every section, in the order of the report.
pub const SECTIONS: [Question; 18] = [
    asks("instructions", "What does the server do for a lock that nobody else wants?", instructions::measure),
    asks("throughput", "How many uncontended locks are taken and given back in a second?", throughput::measure),
    asks("handovers", "How often does a contended lock change hands in a second?", handovers::measure),
    asks("waking", "How long does a released lock wait for the next client, and is that fair?", waking::measure),
    asks("packages", "How do the packages compare as they are published?", packages::measure),
    asks("lease_end", "How late does the next client get a lock whose lease has ended?", lease_end::measure),
    asks("cost", "How many round trips and server commands does a contended lock take?", cost::measure),
    asks("overhead", "What does the module cost commands that are not its own?", overhead::measure),
    asks("memory", "How much memory do a held lock and a waiter take?", memory::measure),
    asks("notify_memory", "How much memory does a request take that waits for a message?", notify::memory),
    asks("notify_handovers", "How often can one connection hand on a lock to itself in a second?", notify::handovers),
    asks(
        "notify_closing",
        "For how long does a connection stop the server that closes with many requests?",
        notify::closing,
    ),
    asks("share_instructions", "What does the server do for a share that is free?", shares::instructions),
    asks("share_handovers", "How often do the permits of a semaphore change hands in a second?", shares::handovers),
    asks("share_readers", "How soon are readers let in that have waited for a writer?", shares::readers),
    asks("share_packages", "How do the packages that have semaphores compare?", packages::permits),
    asks("stretches", "How much is done in one go when very much becomes due at once?", stretches::measure),
    asks(
        "profile",
        "On whose account are the instructions: the server's, its API's or the module's?",
        profile::measure,
    ),
];

pub fn names() -> Vec<&'static str> {
    SECTIONS.iter().map(|question| question.name).collect()
}
