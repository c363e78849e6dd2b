//! The commands of others: what those who do not lock ask of a server while somebody waits for a lock.

use support::Reply;

use super::cycles::many;
use super::workload::{Step, Workload, ok};

/// Connections beside the one that is served: waiting for a lock, or idle where there is no module.
pub const OTHERS: usize = 100;

fn repeated(line: &'static str, answer: Reply) -> Workload {
    Workload::new(move |_| vec![Step::line(line, answer.clone())])
}

pub fn get(_cycles: u64) -> Workload {
    repeated("GET k", Reply::text("value")).prepared_by(vec![Step::line("SET k value", ok())])
}

pub fn set(_cycles: u64) -> Workload {
    repeated("SET k value", ok())
}

/// The keys are there beforehand.
pub fn del(cycles: u64) -> Workload {
    let set = |number| Step::line(&format!("SET k:{number} value"), ok());
    Workload::new(|number| vec![Step::line(&format!("DEL k:{number}"), Reply::Int(1))])
        .prepared_by((0..many(cycles)).map(set).collect())
}

pub fn expire(_cycles: u64) -> Workload {
    repeated("EXPIRE k 1000", Reply::Int(1)).prepared_by(vec![Step::line("SET k value", ok())])
}

pub fn incr(_cycles: u64) -> Workload {
    Workload::new(|number| vec![Step::line("INCR n", Reply::Int(number as i64 + 1))])
}

pub fn hset(_cycles: u64) -> Workload {
    repeated("HSET h field value", Reply::Int(0)).prepared_by(vec![Step::line("HSET h field value", Reply::Int(1))])
}
