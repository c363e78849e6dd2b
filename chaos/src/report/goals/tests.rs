//! Counters of runs that have met some of their goals.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::*;

fn settings(scenario: Scenario, fits: impl Fn(&Settings) -> bool) -> Settings {
    let mut random = fastrand::Rng::with_seed(1);
    (0..1000).map(|_| Settings::choose(Some(scenario), true, &mut random)).find(fits).expect("such settings")
}

fn terms(settings: &Settings) -> Terms<'_> {
    Terms { length: LONG, settings, without: &[], moves_whole_slots: true }
}

/// Counters with all goals of these terms but one.
fn counters_without(terms: &Terms<'_>, left_out: &str) -> Counters {
    let counters = Counters::since(Instant::now());
    counters.add("grants", 1);
    counters.handovers_of("a server".to_owned(), 1);
    goals(terms).filter(|goal| *goal != left_out).for_each(|goal| counters.count(goal));
    counters
}

#[test]
fn long_run_has_each_goal_that_it_can_meet() {
    for scenario in Scenario::SEEDED {
        let settings = settings(scenario, |_| true);
        let terms = terms(&settings);
        assert!(missing(&terms, &counters_without(&terms, "")).is_empty(), "{scenario:?}");
        for goal in goals(&terms) {
            assert_eq!(missing(&terms, &counters_without(&terms, goal)), [goal], "{scenario:?}");
        }
    }
}

#[test]
fn run_without_grants_and_handovers_says_so() {
    let settings = settings(Scenario::Plain, |_| true);
    let short = Terms { length: Duration::from_secs(1), ..terms(&settings) };
    assert_eq!(missing(&short, &Counters::since(Instant::now())), ["grants", "hand-overs"]);
}

#[test]
fn shorter_run_has_the_goal_of_its_scenario() {
    let settings = settings(Scenario::Slots, |_| true);
    let of = |seconds| {
        let terms = Terms { length: Duration::from_secs(seconds), ..terms(&settings) };
        goals(&terms).collect::<Vec<_>>()
    };
    assert!(of(19).is_empty());
    assert_eq!(of(20), [Scenario::Slots.aim()]);
    assert_eq!(of(299), [Scenario::Slots.aim()]);
    assert!(of(300).contains(&"FLUSHALL"));
}

#[test]
fn parts_that_are_left_out_have_no_goals() {
    let has = |terms: &Terms<'_>, what| goals(terms).any(|goal| goal == what);
    let plain = settings(Scenario::Plain, |_| true);
    let without = Terms { without: &[Part::Pauses, Part::Reloads], ..terms(&plain) };
    assert!(has(&terms(&plain), "CLIENT PAUSE") && !has(&without, "CLIENT PAUSE"));
    assert!(has(&terms(&plain), "DEBUG RELOAD") && !has(&without, "DEBUG RELOAD"));
    assert!(has(&without, "SIGSTOP") && !has(&without, "FAILOVER"));
    let [with, without] = [true, false].map(|appends| settings(Scenario::Restarts, |own| own.appends == appends));
    assert!(has(&terms(&with), "kill -9") && !has(&terms(&without), "kill -9"));
    let [with, without] =
        [true, false].map(|period| settings(Scenario::Restarts, |own| (own.recovery_ms > 0) == period));
    assert!(has(&terms(&with), "recovery periods") && !has(&terms(&without), "recovery periods"));
    let slots = settings(Scenario::Slots, |_| true);
    let old = Terms { moves_whole_slots: false, ..terms(&slots) };
    assert!(has(&terms(&slots), "slots moved as a whole") && !has(&old, "slots moved as a whole"));
    assert!(!has(&old, "SWAPDB") && !has(&old, "waits for a message"));
}

#[test]
fn one_of_three_durability_probes_must_be_checked() {
    let settings = settings(Scenario::Restarts, |_| true);
    let terms = terms(&settings);
    let counters = counters_without(&terms, "");
    (0..3).for_each(|_| counters.begin(durability::CHECK));
    assert!(missing(&terms, &counters).is_empty());
    counters.begin(durability::CHECK);
    assert_eq!(missing(&terms, &counters), [format!("check of one of 3 {}", durability::CHECK)]);
    let shorter = Terms { length: LONG_ENOUGH, ..terms };
    assert!(missing(&shorter, &counters).is_empty());
}

/// A goal with another name than its counter would always be missing, or never.
#[test]
fn names_of_goals_are_names_of_counters() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let goals: BTreeSet<&str> = GOALS.iter().flat_map(|(_, _, names)| *names).copied().collect();
    for name in &goals {
        assert!(sources.contains(&format!("\"{name}\"")), "{name:?} is never counted");
    }
    let calls = ["counters.count(\"", "run.fault(\"", "self.make(\"", "count(run, \""];
    for call in calls {
        let counted = sources.split(call).skip(1).filter_map(|rest| rest.split('"').next());
        let forgotten: Vec<&str> = counted.filter(|name| !goals.contains(name)).collect();
        assert!(forgotten.is_empty(), "{forgotten:?} is counted, and is no goal");
    }
}

/// All sources but the table and its tests.
fn sources(folder: &Path) -> String {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let others = paths.filter(|path| !path.ends_with("goals") && !path.ends_with("goals.rs"));
    let read = |path: &Path| fs::read_to_string(path).expect("a source");
    others.map(|path| if path.is_dir() { sources(&path) } else { read(&path) }).collect()
}
