//! Changes the settings, and notes when.

use std::time::{Duration, Instant};

use support::Reply;

use super::in_force::Setting;
use super::{PERIODS, ROUNDING};
use crate::court::Rule;
use crate::ledger::Finding;
use crate::link::Link;
use crate::token::Token;
use crate::world::World;

const LONG_ENOUGH: Rule = "a recovery period lasts for lock.recovery-ms from the server's start";
const ENDED: Rule = "CONFIG SET lock.recovery-ms 0 ends a recovery period";

/// Above the leases of those who are refused for other reasons, and of bursts.
const SHORTEST_LIMIT_MS: u64 = 30;
/// Longer than a period.
const LEASE_MS: u64 = 1000;
/// What a period may last longer than asked for before it counts as that of a server that has started later: a server on a busy
/// machine takes its time to start.
const ODD: Duration = Duration::from_secs(5);

/// Changes the settings until the run is over.
pub fn change(world: &World, mut random: fastrand::Rng) {
    let Some(mut link) = world.connect(0, false) else { return };
    // The one in which the server may have started is noted.
    held_back(world, &mut link);
    while world.goes_on() {
        world.rest(Duration::from_millis(random.u64(100..1500)));
        let changed =
            if random.bool() { limit(world, &mut link, &mut random) } else { period(world, &mut link, &mut random) };
        if changed.is_none() {
            let Some(next) = world.connect(0, false) else { return };
            link = next;
        }
    }
}

/// Another longest lease, or none.
fn limit(world: &World, link: &mut Link, random: &mut fastrand::Rng) -> Option<()> {
    let ms = if random.u8(..3) > 0 { 0 } else { random.u64(SHORTEST_LIMIT_MS..600) };
    set_limit(world, link, ms)
}

fn set_limit(world: &World, link: &mut Link, ms: u64) -> Option<()> {
    world.settings.no_leases.end();
    world.fault("CONFIG SET lock.max-lease-ms", &format!("CONFIG SET lock.max-lease-ms {ms}"));
    set(&world.settings.longest_lease, link, "lock.max-lease-ms", ms)
}

/// A recovery period, which counts from the server's start. It ends by itself, or is ended.
fn period(world: &World, link: &mut Link, random: &mut fastrand::Rng) -> Option<()> {
    let length = Duration::from_millis(random.u64(50..500));
    let holder = Holder::take(world, link)?;
    // A short limit makes the first part of the period long.
    let is_short = random.bool();
    if is_short {
        set_limit(world, link, SHORTEST_LIMIT_MS)?;
    }
    let since_start = u64::try_from((world.started.elapsed() + length).as_millis()).ok()?;
    let settings = &world.settings;
    settings.let_go();
    set(&settings.recovery, link, "lock.recovery-ms", since_start)?;
    let remaining = held_back(world, link)?;
    if ends_early(world.started, since_start, Instant::now() + remaining) {
        let text =
            format!("LOCK.INFO says {remaining:?}, with lock.recovery-ms {since_start}, and the server is younger");
        world.court.charge(LONG_ENOUGH, text);
    }
    world.figures.begins(PERIODS);
    world.fault("recovery period", &format!("CONFIG SET lock.recovery-ms {since_start}, {remaining:?} remain"));
    if remaining > Duration::ZERO && remaining < length + ODD {
        holder.ask(world, link)?;
        world.figures.checked(PERIODS);
        world.rest(if random.bool() { remaining } else { remaining.mul_f64(random.f64()) });
    }
    if is_short {
        set_limit(world, link, 0)?;
    }
    // As long as it is set, a standstill holds grants back, too.
    if random.u8(..4) == 0 {
        return Some(());
    }
    settings.let_go();
    world.ledger.note_for_all(Instant::now(), "fault: CONFIG SET lock.recovery-ms 0".to_owned());
    set(&settings.recovery, link, "lock.recovery-ms", 0)?;
    if held_back(world, link)? > Duration::ZERO {
        world.court.charge(ENDED, "LOCK.INFO says that grants are held back".to_owned());
    }
    Some(())
}

/// Who holds a lock when a period begins.
struct Holder(Token);

impl Holder {
    fn take(world: &World, link: &mut Link) -> Option<Self> {
        let now = Instant::now();
        let lease_ms = world.settings.cut(Some(LEASE_MS), now, now)?;
        let token = world.mint.fresh();
        link.run(&format!("LOCK.ACQUIRE period{token} {token} PX {lease_ms}"));
        Some(Self(token))
    }

    /// Sets the lease, which may be put off, and has another lock asked for, which is not granted.
    fn ask(&self, world: &World, link: &mut Link) -> Option<()> {
        let token = self.0;
        let judge = |finding: Finding| {
            if let Some((rule, what)) = finding {
                world.court.charge(rule, what);
            }
        };
        let sent = Instant::now();
        let reply = link.run(&format!("LOCK.EXTEND period{token} {token} PX {SHORTEST_LIMIT_MS}"));
        judge(world.settings.judge_extension(SHORTEST_LIMIT_MS, &reply, sent, Instant::now()));
        let (sent, other) = (Instant::now(), world.mint.fresh());
        let reply = link.run(&format!("LOCK.ACQUIRE period{other} {other} PX {SHORTEST_LIMIT_MS}"));
        judge(world.settings.judge(Some(SHORTEST_LIMIT_MS), true, &reply, sent, Instant::now()));
        (reply != Reply::Closed).then_some(())
    }
}

/// Whether a period of a server that has started later than `started` ends too early.
fn ends_early(started: Instant, length_ms: u64, end: Instant) -> bool {
    end + ROUNDING < started + Duration::from_millis(length_ms)
}

/// Sets it; None when the connection was closed, and either may be in force.
fn set(setting: &Setting, link: &mut Link, name: &str, value: u64) -> Option<()> {
    setting.begin(value);
    if link.run(&format!("CONFIG SET {name} {value}")) != "OK" {
        return None;
    }
    setting.settled();
    Some(())
}

/// For how long grants are held back yet, which is noted.
fn held_back(world: &World, link: &mut Link) -> Option<Duration> {
    let sent = Instant::now();
    let info = link.run("LOCK.INFO period");
    let received = Instant::now();
    if !matches!(info, Reply::List(_)) {
        return None;
    }
    let remaining = Duration::from_millis(u64::try_from(info.get("recovery-ms").int()).ok()?);
    world.settings.note_remaining(remaining, sent, received);
    Some(remaining)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_must_not_end_before_its_length() {
        let started = Instant::now();
        let at = |ms| started + Duration::from_millis(ms);
        assert!(!ends_early(started, 1000, at(1000)));
        assert!(!ends_early(started, 1000, at(5000)), "the server has started later");
        assert!(ends_early(started, 1000, at(990)));
    }
}
