//! The background work: the run of the timer, the slots of a cluster, and the restart after a panic.

pub mod restart_after_panic;
pub mod run;
pub mod slot_check;
