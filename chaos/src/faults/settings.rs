//! Changes of the settings of the module. The history checks all replies against the settings that are in force.

use std::time::{Duration, Instant};

use super::restart::recovery_of;
use crate::evidence::{ROUNDING, Spans};
use crate::link::Link;
use crate::run::Run;

/// Above the leases of bursts, and of requests that are refused for other reasons.
const SHORTEST_LIMIT_MS: u64 = 30;

/// Changes the settings until the run is over.
pub fn change_settings(run: &Run, mut random: fastrand::Rng) {
    let Some(mut link) = run.connect(0, false) else { return };
    // Notes the period in which the server may have started.
    note_recovery(run, &mut link);
    while run.goes_on() {
        run.rest(Duration::from_millis(random.u64(100..1500)));
        let changed = if random.bool() {
            set_limit(run, &mut link, &mut random)
        } else {
            set_period(run, &mut link, &mut random)
        };
        if changed.is_none() {
            let Some(next) = run.connect(0, false) else { return };
            link = next;
        }
    }
}

fn set_limit(run: &Run, link: &mut Link, random: &mut fastrand::Rng) -> Option<()> {
    let ms = if random.u8(..3) > 0 { 0 } else { random.u64(SHORTEST_LIMIT_MS..600) };
    run.make_fault("CONFIG SET lock.max-lease-ms", &format!("CONFIG SET lock.max-lease-ms {ms}"));
    set(&run.evidence.longest_lease_ms, link, "lock.max-lease-ms", ms)
}

/// Begins a recovery period, which counts from the start of the server. It ends by itself, or is ended.
fn set_period(run: &Run, link: &mut Link, random: &mut fastrand::Rng) -> Option<()> {
    let length = Duration::from_millis(random.u64(50..500));
    let since_start = u64::try_from((run.started.elapsed() + length).as_millis()).ok()?;
    let rest = set_recovery(run, link, since_start)?;
    // The server has started later than the run.
    if Instant::now() + rest + ROUNDING < run.started + Duration::from_millis(since_start) {
        let text = format!("LOCK.INFO shows {rest:?}, with lock.recovery-ms {since_start}, and the server is younger");
        run.fails("a recovery period lasts for lock.recovery-ms from the start of the server", text);
    }
    run.make_fault("recovery period", &format!("CONFIG SET lock.recovery-ms {since_start}, {rest:?} are left"));
    run.rest(if random.bool() { length } else { length.mul_f64(random.f64()) });
    // While it is set, a stall suspends grants too.
    if random.u8(..4) > 0 && set_recovery(run, link, 0)? > Duration::ZERO {
        run.fails("CONFIG SET lock.recovery-ms 0 ends a recovery period", "LOCK.INFO shows a period");
    }
    Some(())
}

/// Returns for how long grants are suspended from now on.
fn set_recovery(run: &Run, link: &mut Link, ms: u64) -> Option<Duration> {
    run.evidence.suspended.end_all();
    run.fault(&format!("CONFIG SET lock.recovery-ms {ms}"));
    set(&run.evidence.recovery_ms, link, "lock.recovery-ms", ms)?;
    note_recovery(run, link)
}

/// Sets a setting; `None` if the connection was closed, and either value can be in force.
fn set(setting: &Spans<u64>, link: &mut Link, name: &str, value: u64) -> Option<()> {
    setting.begin(value);
    (link.run(&format!("CONFIG SET {name} {value}")) == "OK").then(|| setting.settle())
}

/// Notes and returns for how long grants are still suspended.
fn note_recovery(run: &Run, link: &mut Link) -> Option<Duration> {
    let sent = Instant::now();
    let rest = recovery_of(&link.run("LOCK.INFO period"))?;
    run.evidence.suspends(rest, sent, Instant::now());
    Some(rest)
}
