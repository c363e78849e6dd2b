//! Counters of runs that have met some of their goals.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::*;

fn settings(scenario: Scenario) -> Settings {
    let mut random = fastrand::Rng::with_seed(1);
    let mut all = (0..1000).map(|_| Settings::choose(Some(scenario), true, &mut random));
    let is_full = |own: &Settings| scenario != Scenario::Restarts || own.appends && own.recovery_ms > 0;
    all.find(is_full).expect("such settings")
}

fn terms(settings: &Settings) -> Terms<'_> {
    Terms { length: LONG, settings, moves_whole_slots: true }
}

#[test]
fn run_of_five_minutes_has_each_goal_that_it_can_meet() {
    let settings = settings(Scenario::Slots);
    let counters = Counters::since(Instant::now());
    let of = |seconds| missing(&Terms { length: Duration::from_secs(seconds), ..terms(&settings) }, &counters);
    assert_eq!(of(19), ["grants", "hand-overs"]);
    assert_eq!(of(20), ["grants", "hand-overs", Scenario::Slots.aim()]);
    assert!(of(300).contains(&"FLUSHALL".to_owned()));
}

/// A goal with another name than its counter would always be missing, or never.
#[test]
fn names_of_goals_are_names_of_counters() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let all = Scenario::SEEDED.map(|scenario| goals(&terms(&settings(scenario))));
    let goals: BTreeSet<&str> = all.into_iter().flatten().collect();
    for name in &goals {
        assert!(sources.contains(&format!("\"{name}\"")), "{name:?} is never counted");
    }
    let calls = ["counters.count(\"", "run.make_fault(\"", "self.make(\"", "count(run, \""];
    for call in calls {
        let counted = sources.split(call).skip(1).filter_map(|rest| rest.split('"').next());
        let forgotten: Vec<&str> = counted.filter(|name| !goals.contains(name) && *name != "grants").collect();
        assert!(forgotten.is_empty(), "{forgotten:?} is counted, and is no goal");
    }
}

/// All sources but the goals and their tests.
fn sources(folder: &Path) -> String {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let others = paths.filter(|path| !path.ends_with("goals") && !path.ends_with("goals.rs"));
    let read = |path: &Path| fs::read_to_string(path).expect("a source");
    others.map(|path| if path.is_dir() { sources(&path) } else { read(&path) }).collect()
}
