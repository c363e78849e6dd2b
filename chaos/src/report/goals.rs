//! Coverage goals: what a long run must have met, of everything that its scenario and its settings allow. A run without
//! a failure says nothing about what has not happened in it.

use std::time::Duration;

use super::Counters;
use crate::durability;
use crate::scenario::{Scenario, Settings};

/// A run of this length can meet what its scenario is about.
const LONG_ENOUGH: Duration = Duration::from_secs(20);
/// A run of this length can meet everything.
const LONG: Duration = Duration::from_secs(300);
/// At least one durability probe of this number must be checked.
const ONE_PROBE_OF: u64 = 3;

/// What decides which goals a run has.
pub struct Terms<'r> {
    pub length: Duration,
    pub settings: &'r Settings,
    /// Whether the server can move slots as a whole.
    pub moves_whole_slots: bool,
}

/// The goals that a run has not met.
pub fn missing(terms: &Terms<'_>, counters: &Counters) -> Vec<String> {
    let aim = terms.settings.scenario.aim();
    let is_due = |goal: &&str| terms.length >= LONG || terms.length >= LONG_ENOUGH && *goal == aim;
    let goals = goals(terms).into_iter().filter(is_due).filter(|goal| !counters.has(goal));
    let mut missing: Vec<String> = counters.missing().into_iter().chain(goals).map(str::to_owned).collect();
    if terms.length >= LONG && counters.mostly_void(durability::CHECK, ONE_PROBE_OF) {
        missing.push(format!("check of one of {ONE_PROBE_OF} {}", durability::CHECK));
    }
    missing
}

/// All goals that a run can meet, by the names of the counters. Replies of the server to a fault (`LOADING`, `MOVED`)
/// are no goals.
fn goals(terms: &Terms<'_>) -> Vec<&'static str> {
    let Terms { settings, moves_whole_slots, .. } = *terms;
    let scenario = settings.scenario;
    if scenario == Scenario::Soak {
        return Vec::new();
    }
    let mut goals = Vec::new();
    let mut add = |is_here: bool, names: &[&'static str]| goals.extend(names.iter().filter(|_| is_here));
    let [memory, restarts, replicas, slots, clock] =
        [Scenario::Memory, Scenario::Restarts, Scenario::Replicas, Scenario::Slots, Scenario::Clock]
            .map(|of| scenario == of);

    add(true, &["SIGSTOP", "DEBUG SLEEP", "slow script", "CONFIG SET hz", "CONFIG SET lock.wake-foreign"]);
    // A server counts them from its start.
    add(!restarts && !replicas, &["signals to waiters of python-redis-lock"]);
    add(true, &["CLIENT KILL TYPE normal", "CLIENT KILL ID", "CLIENT UNBLOCK"]);
    add(true, &["CLIENT PAUSE", "CLIENT PAUSE over leases", "leases that end in a pause"]);
    add(true, &["BGSAVE", "BGREWRITEAOF", "files written"]);
    add(settings.can_reload(), &["DEBUG RELOAD"]);
    add(true, &["external commands", "FLUSHALL", "RESTORE", "HDEL", "ZREM of a share"]);
    add(true, &["EVAL of the unlock script of a library"]);
    add(!slots, &["FLUSHDB", "SWAPDB", "locks lost to FLUSHALL"]);
    add(true, &["leases that end together"]);
    add(scenario.keeps_its_server(), &["CONFIG SET lock.max-lease-ms", "recovery period", "recovery periods"]);
    add(true, &["network: resets", "network: half-open connections", "network: silent connections"]);
    add(true, &["network: delays"]);
    add(memory, &["CONFIG SET maxmemory", "memory that ran out"]);
    add(restarts, &["SHUTDOWN", "locks found after a restart"]);
    add(restarts && settings.appends, &["kill -9", "kill -9, torn file"]);
    add(restarts && settings.recovery_ms > 0, &["recovery periods"]);
    add(replicas, &["replicas", "replicas end", "replicas leave and return", "locks compared", "FAILOVER"]);
    add(replicas, &["locks found after a FAILOVER", "messages: lost", "min-replicas-to-write"]);
    add(replicas, &["refused writes"]);
    add(slots, &["slots moved key by key", "locks found after a move", "waiters of a lock that moves"]);
    add(slots && moves_whole_slots, &["slots moved as a whole"]);
    add(clock, &["steps of the clock", "locks found after a step"]);
    add(restarts || replicas || slots || clock, &[durability::CHECK]);
    add(true, &["mutexes", "re-entrant locks", "shares", "shares of one client", "OTHERFORM", "fencing tokens"]);
    add(true, &["repeats by holders", "locks without a lease", "RESET", "pipelines that are cut off"]);
    add(true, &["QUEUEFULL", "inspections", "forced releases"]);
    add(!replicas, &["CLIENT REPLY"]);
    // A recovery period can suspend all grants.
    add(settings.has_quiet_locks() && settings.recovery_ms == 0, &["quiet locks"]);
    let messages = !slots && !clock;
    add(messages, &["waits for a message", "waits asked for again", "transactions", "copies that block"]);
    add(messages, &["messages: granted", "messages: timeout", "messages: withdrawn", "NOSUBSCRIBER"]);
    add(messages, &["asking connections closed", "listening connections closed", "moments without a listener"]);
    add(messages, &["connections that ask and listen"]);
    goals
}

#[cfg(test)]
mod tests;
