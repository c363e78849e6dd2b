//! The hunt for a fault of the simulated server.

use std::time::Instant;

use redis_lock::server::{Fault, set_fault};
use simulator::seed::failure_of;

use crate::outcome::{Found, MAX_HISTORIES, Outcome};

/// Runs seeds until one fails with the sign of the fault, and holds without the fault.
pub fn hunt(fault: Fault) -> Outcome {
    let begin = Instant::now();
    let mut other = None;
    for seed in 1..=MAX_HISTORIES {
        set_fault(Some(fault));
        let failure = failure_of(seed);
        set_fault(None);
        let time = begin.elapsed();
        match failure {
            Some(why) if why.contains(fault.sign()) && failure_of(seed).is_none() => {
                let history = seed.to_string();
                return Outcome { name: fault.to_string(), time, result: Ok(Found { history, why }) };
            }
            Some(why) => _ = other.get_or_insert(format!("{seed} fails otherwise: {why}")),
            None => {}
        }
    }
    let why = other.unwrap_or_else(|| format!("none of {MAX_HISTORIES} histories fails"));
    Outcome { name: fault.to_string(), time: begin.elapsed(), result: Err(why) }
}
