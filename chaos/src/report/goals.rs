//! Coverage goals: what a long run must have met, of everything that its scenario and its settings allow. A run without
//! a failure says nothing about what has not happened in it.

use std::time::Duration;

use super::Counters;
use crate::Part;
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
    pub without: &'r [Part],
    /// Whether the server can move slots as a whole.
    pub moves_whole_slots: bool,
}

type Where = fn(&Terms<'_>) -> bool;

const ANYWHERE: Where = |_| true;
const IN_ONE_SERVER: Where = |terms| terms.settings.scenario != Scenario::Slots;
const ON_A_STEADY_CLOCK: Where = |terms| terms.settings.scenario != Scenario::Clock;
const WITHOUT_REPLICAS: Where = |terms| terms.settings.scenario != Scenario::Replicas;
const WHERE_RELOADS_ARE_HARMLESS: Where = |terms| terms.settings.can_reload();
/// A recovery period can suspend all grants.
const WHERE_LOCKS_STAY: Where = |terms| terms.settings.has_quiet_locks() && terms.settings.recovery_ms == 0;
const WHERE_MESSAGES_ARE_SENT: Where = |terms| !matches!(terms.settings.scenario, Scenario::Slots | Scenario::Clock);
const WHERE_THE_SERVER_STAYS: Where =
    |terms| !matches!(terms.settings.scenario, Scenario::Restarts | Scenario::Replicas | Scenario::Soak);
const WITH_FAULTS: Where = |terms| terms.settings.scenario != Scenario::Soak;
/// Elsewhere settings are not changed.
const ON_ONE_LASTING_SERVER: Where = |terms| terms.settings.scenario.keeps_its_server();
const ON_MEMORY: Where = |terms| terms.settings.scenario == Scenario::Memory;
const ON_RESTARTS: Where = |terms| terms.settings.scenario == Scenario::Restarts;
const ON_RESTARTS_WITH_A_FILE: Where = |terms| ON_RESTARTS(terms) && terms.settings.appends;
const ON_RESTARTS_WITH_A_PERIOD: Where = |terms| ON_RESTARTS(terms) && terms.settings.recovery_ms > 0;
const ON_REPLICAS: Where = |terms| terms.settings.scenario == Scenario::Replicas;
const ON_SLOTS: Where = |terms| terms.settings.scenario == Scenario::Slots;
const ON_SLOTS_THAT_MOVE_WHOLE: Where = |terms| ON_SLOTS(terms) && terms.moves_whole_slots;
const ON_CLOCK: Where = |terms| terms.settings.scenario == Scenario::Clock;
const WITH_DURABILITY_PROBES: Where = |terms| {
    matches!(terms.settings.scenario, Scenario::Restarts | Scenario::Replicas | Scenario::Slots | Scenario::Clock)
};

/// All goals by the names of the counters: the part without which a goal is not met, and where it can be met. Replies
/// of the server to a fault (`LOADING`, `MOVED`) are no goals.
const GOALS: &[(Option<Part>, Where, &[&str])] = &[
    (Some(Part::Stalls), ANYWHERE, &["SIGSTOP", "DEBUG SLEEP", "slow script"]),
    (Some(Part::Stalls), ANYWHERE, &["CONFIG SET hz", "CONFIG SET lock.wake-foreign"]),
    // A server counts them from its start.
    (Some(Part::Stalls), WHERE_THE_SERVER_STAYS, &["signals to waiters of python-redis-lock"]),
    (Some(Part::Strikes), ANYWHERE, &["CLIENT KILL TYPE normal", "CLIENT KILL ID", "CLIENT UNBLOCK"]),
    (Some(Part::Pauses), ANYWHERE, &["CLIENT PAUSE", "CLIENT PAUSE over leases", "leases that end in a pause"]),
    (Some(Part::Pauses), ON_A_STEADY_CLOCK, &["grants dated"]),
    (Some(Part::Saves), ANYWHERE, &["BGSAVE", "BGREWRITEAOF", "files written"]),
    (Some(Part::Reloads), WHERE_RELOADS_ARE_HARMLESS, &["DEBUG RELOAD"]),
    (Some(Part::External), ANYWHERE, &["external commands", "FLUSHALL", "RESTORE"]),
    (Some(Part::External), ANYWHERE, &["EVAL of the unlock script of a library", "HDEL", "ZREM of a share"]),
    (Some(Part::External), IN_ONE_SERVER, &["FLUSHDB", "SWAPDB"]),
    (Some(Part::External), IN_ONE_SERVER, &["locks lost to FLUSHALL"]),
    (Some(Part::Bursts), ANYWHERE, &["leases that end together"]),
    (Some(Part::Settings), ON_ONE_LASTING_SERVER, &["CONFIG SET lock.max-lease-ms", "recovery period"]),
    (Some(Part::Settings), ON_ONE_LASTING_SERVER, &["recovery periods"]),
    (Some(Part::Network), ANYWHERE, &["network: resets", "network: half-open connections"]),
    (Some(Part::Network), ANYWHERE, &["network: silent connections", "network: delays"]),
    (Some(Part::Scenario), ON_MEMORY, &["maxmemory", "memory that ran out"]),
    (Some(Part::Scenario), ON_RESTARTS, &["SHUTDOWN", "locks found after a restart"]),
    (Some(Part::Scenario), ON_RESTARTS_WITH_A_FILE, &["kill -9", "kill -9, torn file"]),
    (Some(Part::Scenario), ON_RESTARTS_WITH_A_PERIOD, &["recovery periods"]),
    (Some(Part::Scenario), ON_REPLICAS, &["replicas", "replicas end", "replicas leave and return", "locks compared"]),
    (Some(Part::Scenario), ON_REPLICAS, &["FAILOVER", "locks found after a FAILOVER", "messages: lost"]),
    (Some(Part::Scenario), ON_REPLICAS, &["min-replicas-to-write", "refused writes"]),
    (
        Some(Part::Scenario),
        ON_SLOTS,
        &["slots moved key by key", "locks found after a move", "waiters of a lock that moves"],
    ),
    (Some(Part::Scenario), ON_SLOTS_THAT_MOVE_WHOLE, &["slots moved as a whole"]),
    (Some(Part::Scenario), ON_CLOCK, &["steps of the clock", "locks found after a step"]),
    (Some(Part::Scenario), WITH_DURABILITY_PROBES, &[durability::CHECK]),
    (None, ANYWHERE, &["mutexes", "re-entrant locks", "shares", "shares of one client", "OTHERFORM", "fencing tokens"]),
    (None, ANYWHERE, &["repeats by holders", "locks without a lease", "RESET", "pipelines that are cut off"]),
    (None, ANYWHERE, &["QUEUEFULL", "inspections", "forced releases"]),
    (None, WITHOUT_REPLICAS, &["CLIENT REPLY"]),
    (None, WHERE_LOCKS_STAY, &["quiet locks"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["waits for a message", "waits asked for again", "transactions"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["copies that block", "connections that ask and listen"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["messages: granted", "messages: timeout", "messages: withdrawn"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["asking connections closed", "listening connections closed"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["moments without a listener", "NOSUBSCRIBER"]),
];

/// The goals that a run has not met.
pub fn missing(terms: &Terms<'_>, counters: &Counters) -> Vec<String> {
    let mut missing = counters.missing();
    missing.extend(goals(terms).filter(|goal| !counters.has(goal)));
    let mut missing: Vec<String> = missing.into_iter().map(str::to_owned).collect();
    if terms.length >= LONG && counters.mostly_void(durability::CHECK, ONE_PROBE_OF) {
        missing.push(format!("check of one of {ONE_PROBE_OF} {}", durability::CHECK));
    }
    missing
}

/// The goals of a run of this length: all that it can meet, or what its scenario is about, or none.
fn goals(terms: &Terms<'_>) -> impl Iterator<Item = &'static str> {
    let aim = terms.settings.scenario.aim();
    let has = |part: Option<Part>| part.is_none_or(|part| !terms.without.contains(&part));
    let rows = GOALS.iter().filter(move |(part, is_here, _)| has(*part) && is_here(terms) && WITH_FAULTS(terms));
    let is_due = move |goal: &&str| terms.length >= LONG || terms.length >= LONG_ENOUGH && *goal == aim;
    rows.flat_map(|(_, _, names)| *names).copied().filter(is_due)
}

#[cfg(test)]
mod tests;
