//! Changes of the settings of the module.

use std::time::{Duration, Instant};

use support::Reply;

use super::restart::{PERIODS, recovery_of};
use crate::evidence::{ROUNDING, Spans};
use crate::link::Link;
use crate::report::{Finding, Rule};
use crate::run::Run;
use crate::token::Token;

const LONG_ENOUGH: Rule = "a recovery period lasts for lock.recovery-ms from the start of the server";
const ENDED: Rule = "CONFIG SET lock.recovery-ms 0 ends a recovery period";

/// Above the leases of bursts, and of requests that are refused for other reasons.
const SHORTEST_LIMIT_MS: u64 = 30;
/// Longer than a period.
const LEASE_MS: u64 = 1000;
/// A period that is longer by this than asked for is that of a server that has started later, on a busy machine.
const ODD: Duration = Duration::from_secs(5);

/// Changes the settings until the run is over.
pub fn change_settings(run: &Run, mut random: fastrand::Rng) {
    let Some(mut link) = run.connect(0, false) else { return };
    // Notes the period in which the server may have started.
    note_recovery(run, &mut link);
    while run.goes_on() {
        run.rest(Duration::from_millis(random.u64(100..1500)));
        let changed = if random.bool() {
            let ms = if random.u8(..3) > 0 { 0 } else { random.u64(SHORTEST_LIMIT_MS..600) };
            set_limit(run, &mut link, ms)
        } else {
            set_period(run, &mut link, &mut random)
        };
        if changed.is_none() {
            let Some(next) = run.connect(0, false) else { return };
            link = next;
        }
    }
}

/// Sets the longest lease; 0 for none.
fn set_limit(run: &Run, link: &mut Link, ms: u64) -> Option<()> {
    run.evidence.no_leases.end_all();
    run.make_fault("CONFIG SET lock.max-lease-ms", &format!("CONFIG SET lock.max-lease-ms {ms}"));
    set(&run.evidence.longest_lease_ms, link, "lock.max-lease-ms", ms)
}

/// Begins a recovery period, which counts from the start of the server. It ends by itself, or is ended.
fn set_period(run: &Run, link: &mut Link, random: &mut fastrand::Rng) -> Option<()> {
    let length = Duration::from_millis(random.u64(50..500));
    // A lock that is held when the period begins.
    let (holder, now) = (run.tokens.fresh(), Instant::now());
    let lease_ms = run.evidence.cut(Some(LEASE_MS), now, now)?;
    link.run(&format!("LOCK.ACQUIRE period{holder} {holder} PX {lease_ms}"));
    // A short limit makes the first part of the period long.
    let is_short = random.bool();
    if is_short {
        set_limit(run, link, SHORTEST_LIMIT_MS)?;
    }
    let since_start = u64::try_from((run.started.elapsed() + length).as_millis()).ok()?;
    run.evidence.recovery_changes();
    set(&run.evidence.recovery_ms, link, "lock.recovery-ms", since_start)?;
    let rest = note_recovery(run, link)?;
    // The server has started later than the run.
    if Instant::now() + rest + ROUNDING < run.started + Duration::from_millis(since_start) {
        let text = format!("LOCK.INFO shows {rest:?}, with lock.recovery-ms {since_start}, and the server is younger");
        run.fails(LONG_ENOUGH, text);
    }
    run.counters.begin(PERIODS);
    run.make_fault("recovery period", &format!("CONFIG SET lock.recovery-ms {since_start}, {rest:?} are left"));
    if rest > Duration::ZERO && rest < length + ODD {
        check_requests(run, link, holder)?;
        run.counters.count(PERIODS);
        run.rest(if random.bool() { rest } else { rest.mul_f64(random.f64()) });
    }
    if is_short {
        set_limit(run, link, 0)?;
    }
    // While it is set, a stall suspends grants too.
    if random.u8(..4) == 0 {
        return Some(());
    }
    run.evidence.recovery_changes();
    run.fault("CONFIG SET lock.recovery-ms 0");
    set(&run.evidence.recovery_ms, link, "lock.recovery-ms", 0)?;
    if note_recovery(run, link)? > Duration::ZERO {
        run.fails(ENDED, "LOCK.INFO shows a period");
    }
    Some(())
}

/// Sets the lease of a holder, which can be put off, and asks for another lock, which is not granted.
fn check_requests(run: &Run, link: &mut Link, holder: Token) -> Option<()> {
    let (other, lease_ms) = (run.tokens.fresh(), Some(SHORTEST_LIMIT_MS));
    let mut check = |line: String, is_extension: bool| -> Finding {
        let sent = Instant::now();
        let (reply, received) = (link.run(&line), Instant::now());
        if is_extension {
            run.evidence.check_extension(lease_ms, &reply, sent, received)
        } else {
            run.evidence.check_lease(lease_ms, true, &reply, sent, received)
        }
    };
    let extended = check(format!("LOCK.EXTEND period{holder} {holder} PX {SHORTEST_LIMIT_MS}"), true);
    let asked = check(format!("LOCK.ACQUIRE period{other} {other} PX {SHORTEST_LIMIT_MS}"), false);
    extended.into_iter().chain(asked).for_each(|(rule, what)| run.fails(rule, what));
    (link.run("PING") != Reply::Closed).then_some(())
}

/// Sets a setting; `None` if the connection was closed, and either value can be in force.
fn set(setting: &Spans<u64>, link: &mut Link, name: &str, value: u64) -> Option<()> {
    setting.begin(value);
    (link.run(&format!("CONFIG SET {name} {value}")) == "OK").then(|| setting.settle())
}

/// Notes and returns for how long grants are still suspended.
fn note_recovery(run: &Run, link: &mut Link) -> Option<Duration> {
    let sent = Instant::now();
    let info = link.run("LOCK.INFO period");
    let received = Instant::now();
    let rest = recovery_of(&info)?;
    run.evidence.note_remaining(rest, sent, received);
    Some(rest)
}
