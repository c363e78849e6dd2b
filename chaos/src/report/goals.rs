//! Coverage goals: what a run must have met. A run without a failure says nothing about what has not happened in it.

use std::time::Duration;

use super::Counters;
use crate::durability::{BEGUN, CHECK};
use crate::faults::Faults;
use crate::scenario::{Scenario, Settings};

/// A run of this length can meet what its scenario is about.
const LONG_ENOUGH: Duration = Duration::from_secs(20);
/// A run of this length can meet each fault.
const LONG: Duration = Duration::from_secs(300);
/// At least one durability probe of this number must be checked.
const ONE_PROBE_OF: u64 = 3;

/// The goals that a run of this length has not met, by the names of the counters.
pub fn missing(length: Duration, settings: &Settings, counters: &Counters) -> Vec<&'static str> {
    let (is_soak, is_long) = (settings.scenario == Scenario::Soak, length >= LONG);
    let aim = Some(settings.scenario.aim()).filter(|_| !is_soak && length >= LONG_ENOUGH);
    let faults = Faults::possible(settings).map(|(_, name, _)| name).filter(|_| !is_soak && is_long);
    let goals = ["grants", "hand-overs"].into_iter().chain(aim).chain(faults);
    let mut missing: Vec<_> = goals.filter(|goal| !counters.has(goal)).collect();
    if is_long && counters.of(CHECK) * ONE_PROBE_OF < counters.of(BEGUN) {
        missing.push("check of one of three durability probes");
    }
    missing
}

#[test]
fn long_run_must_meet_each_fault() {
    let settings = Settings::choose(Some(Scenario::Slots), true, &mut fastrand::Rng::with_seed(1));
    let counters = Counters::since(std::time::Instant::now());
    let of = |seconds| missing(Duration::from_secs(seconds), &settings, &counters);
    assert_eq!(of(19), ["grants", "hand-overs"]);
    assert_eq!(of(20), ["grants", "hand-overs", Scenario::Slots.aim()]);
    assert!(of(300).contains(&"SIGSTOP") && !of(300).contains(&"DEBUG RELOAD"));
}
