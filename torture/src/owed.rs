//! What a long run must have met, of everything that its ground and its settings allow. A run that holds says nothing about
//! what has not happened in it.

use std::time::Duration;

use crate::Part;
use crate::deposit;
use crate::figures::Figures;
use crate::ground::{Ground, Kind};

/// A run that takes so long has the time to meet what its ground is about.
const LONG_ENOUGH: Duration = Duration::from_secs(20);
/// A run that takes so long has the time to meet everything.
const LONG: Duration = Duration::from_secs(300);
/// Of so many locks that are left to be found again at least one set is looked at.
const ONE_DEPOSIT_OF: u64 = 3;

/// What decides what a run can meet.
pub struct Terms<'g> {
    pub length: Duration,
    pub ground: &'g Ground,
    pub without: &'g [Part],
    /// Whether the server can move slots as a whole.
    pub moves_whole_slots: bool,
}

type Where = fn(&Terms<'_>) -> bool;

const ANYWHERE: Where = |_| true;
const IN_ONE_SERVER: Where = |terms| terms.ground.kind() != Kind::Slots;
const ON_A_STEADY_CLOCK: Where = |terms| terms.ground.kind() != Kind::Clock;
const WITHOUT_REPLICAS: Where = |terms| terms.ground.kind() != Kind::Replicas;
const WHERE_RELOADS_DO_NO_HARM: Where = |terms| terms.ground.can_reload();
/// A recovery period may hold back any of them.
const WHERE_LOCKS_STAY: Where = |terms| terms.ground.has_quiet_locks() && terms.ground.recovery_ms == 0;
const WHERE_MESSAGES_ARE_SENT: Where = |terms| !matches!(terms.ground.kind(), Kind::Slots | Kind::Clock);
const WHERE_THE_SERVER_STAYS: Where = |terms| !matches!(terms.ground.kind(), Kind::Restarts | Kind::Replicas);
/// Elsewhere settings are not changed.
const ON_ONE_SERVER_ALL_THE_TIME: Where = |terms| terms.ground.kind().keeps_its_server();
const ON_MEMORY: Where = |terms| terms.ground.kind() == Kind::Memory;
const ON_RESTARTS: Where = |terms| terms.ground.kind() == Kind::Restarts;
const ON_RESTARTS_WITH_A_LOG: Where = |terms| ON_RESTARTS(terms) && terms.ground.appends;
const ON_RESTARTS_WITH_A_PERIOD: Where = |terms| ON_RESTARTS(terms) && terms.ground.recovery_ms > 0;
const ON_REPLICAS: Where = |terms| terms.ground.kind() == Kind::Replicas;
const ON_SLOTS: Where = |terms| terms.ground.kind() == Kind::Slots;
const ON_SLOTS_THAT_MOVE_WHOLE: Where = |terms| ON_SLOTS(terms) && terms.moves_whole_slots;
const ON_CLOCK: Where = |terms| terms.ground.kind() == Kind::Clock;
const WHERE_LOCKS_ARE_LEFT: Where =
    |terms| matches!(terms.ground.kind(), Kind::Restarts | Kind::Replicas | Kind::Slots | Kind::Clock);

/// Everything that there is to meet, by the names that the figures have for it: without which part it is not there, where it
/// can be met, and what it is. What the server answers to a fault (`LOADING`, `MOVED`) is no fault of its own.
const OWED: &[(Option<Part>, Where, &[&str])] = &[
    (Some(Part::Stalls), ANYWHERE, &["SIGSTOP", "DEBUG SLEEP", "slow script"]),
    (Some(Part::Stalls), ANYWHERE, &["CONFIG SET hz", "CONFIG SET lock.wake-foreign"]),
    // The server counts them since it has started.
    (Some(Part::Stalls), WHERE_THE_SERVER_STAYS, &["signals to those who wait with python-redis-lock"]),
    (Some(Part::Strikes), ANYWHERE, &["CLIENT KILL TYPE normal", "CLIENT KILL ID", "CLIENT UNBLOCK"]),
    (Some(Part::Pauses), ANYWHERE, &["CLIENT PAUSE", "CLIENT PAUSE over leases", "leases that end in a pause"]),
    (Some(Part::Pauses), ON_A_STEADY_CLOCK, &["grants dated"]),
    (Some(Part::Saves), ANYWHERE, &["BGSAVE", "BGREWRITEAOF", "files written"]),
    (Some(Part::Reloads), WHERE_RELOADS_DO_NO_HARM, &["DEBUG RELOAD"]),
    (Some(Part::Foreign), ANYWHERE, &["foreign commands", "FLUSHALL", "RESTORE"]),
    (Some(Part::Foreign), ANYWHERE, &["EVAL of a library's unlock script", "HDEL", "ZREM of a share"]),
    (Some(Part::Foreign), IN_ONE_SERVER, &["FLUSHDB", "SWAPDB"]),
    (Some(Part::Foreign), IN_ONE_SERVER, &["locks lost to FLUSHALL"]),
    (Some(Part::Bursts), ANYWHERE, &["leases that end together"]),
    (Some(Part::Settings), ON_ONE_SERVER_ALL_THE_TIME, &["CONFIG SET lock.max-lease-ms", "recovery period"]),
    (Some(Part::Settings), ON_ONE_SERVER_ALL_THE_TIME, &["recovery periods"]),
    (Some(Part::Network), ANYWHERE, &["network: resets", "network: half-open connections"]),
    (Some(Part::Network), ANYWHERE, &["network: silent connections", "network: delays"]),
    (Some(Part::Ground), ON_MEMORY, &["maxmemory", "memory that ran out"]),
    (Some(Part::Ground), ON_RESTARTS, &["SHUTDOWN", "locks found after a restart"]),
    (Some(Part::Ground), ON_RESTARTS_WITH_A_LOG, &["kill -9", "kill -9, torn file"]),
    (Some(Part::Ground), ON_RESTARTS_WITH_A_PERIOD, &["recovery periods"]),
    (Some(Part::Ground), ON_REPLICAS, &["replicas", "replicas end", "replicas leave and return", "locks compared"]),
    (Some(Part::Ground), ON_REPLICAS, &["FAILOVER", "locks found after a FAILOVER", "messages: lost"]),
    (Some(Part::Ground), ON_REPLICAS, &["min-replicas-to-write", "refused writes"]),
    (Some(Part::Ground), ON_SLOTS, &["slots moved key by key", "locks found after a move"]),
    (Some(Part::Ground), ON_SLOTS, &["those who wait for a lock that moves"]),
    (Some(Part::Ground), ON_SLOTS_THAT_MOVE_WHOLE, &["slots moved as a whole"]),
    (Some(Part::Ground), ON_CLOCK, &["steps of the clock", "locks found after a step"]),
    (Some(Part::Ground), WHERE_LOCKS_ARE_LEFT, &[deposit::CHECK]),
    (None, ANYWHERE, &["mutexes", "re-entrant locks", "shares", "shares of one client", "OTHERFORM"]),
    (None, ANYWHERE, &["repeats by holders", "locks without a lease", "RESET", "pipelines that are cut off"]),
    (None, WITHOUT_REPLICAS, &["CLIENT REPLY"]),
    (None, WHERE_LOCKS_STAY, &["quiet locks"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["waits for a message", "waits asked for again", "transactions"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["copies that block", "connections that ask and listen"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["messages: granted", "messages: timeout", "messages: withdrawn"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["asking connections closed", "listening connections closed"]),
    (None, WHERE_MESSAGES_ARE_SENT, &["moments without a listener", "NOSUBSCRIBER"]),
];

/// What the run was to meet, and has not; empty if it has met everything.
pub fn missing(terms: &Terms<'_>, figures: &Figures) -> Vec<String> {
    let mut missing = figures.missing();
    missing.extend(of_the_table(terms).filter(|what| !figures.has_met(what)));
    let mut missing: Vec<String> = missing.into_iter().map(str::to_owned).collect();
    if terms.length >= LONG && figures.skips_most(deposit::CHECK, ONE_DEPOSIT_OF) {
        missing.push(format!("look at one of {ONE_DEPOSIT_OF} {}", deposit::CHECK));
    }
    missing
}

/// What a run of this length owes: everything that it can meet, or what its ground is about, or nothing of the table.
fn of_the_table(terms: &Terms<'_>) -> impl Iterator<Item = &'static str> {
    let aim = terms.ground.kind().aim();
    let has = |part: Option<Part>| part.is_none_or(|part| !terms.without.contains(&part));
    let rows = OWED.iter().filter(move |(part, is_here, _)| has(*part) && is_here(terms));
    let is_owed = move |what: &&str| terms.length >= LONG || terms.length >= LONG_ENOUGH && *what == aim;
    rows.flat_map(|(_, _, names)| *names).copied().filter(is_owed)
}

#[cfg(test)]
mod tests;
