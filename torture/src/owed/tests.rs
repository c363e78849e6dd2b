//! Figures of runs that have met this or that.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::*;

fn ground(kind: Kind, fits: impl Fn(&Ground) -> bool) -> Ground {
    let mut random = fastrand::Rng::with_seed(1);
    (0..1000).map(|_| Ground::choose(Some(kind), true, &mut random)).find(fits).expect("such a ground")
}

fn terms(ground: &Ground) -> Terms<'_> {
    Terms { length: LONG, ground, without: &[], moves_whole_slots: true }
}

/// Figures with everything that these terms allow but one thing.
fn figures_without(terms: &Terms<'_>, left_out: &str) -> Figures {
    let figures = Figures::since(Instant::now());
    figures.grants.add(1);
    figures.handovers.saw("a server".to_owned(), 1);
    of_the_table(terms).filter(|what| *what != left_out).for_each(|what| figures.checked(what));
    figures
}

#[test]
fn a_long_run_owes_each_thing_that_it_can_meet_and_no_other() {
    for kind in [Kind::Plain, Kind::Memory, Kind::Restarts, Kind::Replicas, Kind::Slots, Kind::Clock] {
        let ground = ground(kind, |_| true);
        let terms = terms(&ground);
        assert!(missing(&terms, &figures_without(&terms, "")).is_empty(), "{kind:?}");
        for what in of_the_table(&terms) {
            assert_eq!(missing(&terms, &figures_without(&terms, what)), [what], "{kind:?}");
        }
    }
}

#[test]
fn a_run_without_grants_and_handovers_says_so_however_short_it_is() {
    let ground = ground(Kind::Plain, |_| true);
    let short = Terms { length: Duration::from_secs(1), ..terms(&ground) };
    assert_eq!(missing(&short, &Figures::since(Instant::now())), ["grants", "hand-overs"]);
}

#[test]
fn a_shorter_run_owes_what_its_ground_is_about() {
    let ground = ground(Kind::Slots, |_| true);
    let owed = |seconds| {
        let terms = Terms { length: Duration::from_secs(seconds), ..terms(&ground) };
        of_the_table(&terms).collect::<Vec<_>>()
    };
    assert!(owed(19).is_empty());
    assert_eq!(owed(20), [Kind::Slots.aim()]);
    assert_eq!(owed(299), [Kind::Slots.aim()]);
    assert!(owed(300).contains(&"FLUSHALL"));
}

#[test]
fn what_a_run_leaves_out_and_what_its_settings_do_not_allow_it_does_not_owe() {
    let owes = |terms: &Terms<'_>, what| of_the_table(terms).any(|owed| owed == what);
    let plain = ground(Kind::Plain, |_| true);
    let without = Terms { without: &[Part::Pauses, Part::Reloads], ..terms(&plain) };
    assert!(owes(&terms(&plain), "CLIENT PAUSE") && !owes(&without, "CLIENT PAUSE"));
    assert!(owes(&terms(&plain), "DEBUG RELOAD") && !owes(&without, "DEBUG RELOAD"));
    assert!(owes(&without, "SIGSTOP") && !owes(&without, "FAILOVER"));
    let [with, without] = [true, false].map(|appends| ground(Kind::Restarts, |ground| ground.appends == appends));
    assert!(owes(&terms(&with), "kill -9") && !owes(&terms(&without), "kill -9"));
    let [with, without] = [true, false].map(|held| ground(Kind::Restarts, |ground| (ground.recovery_ms > 0) == held));
    assert!(owes(&terms(&with), "recovery periods") && !owes(&terms(&without), "recovery periods"));
    let slots = ground(Kind::Slots, |_| true);
    let old = Terms { moves_whole_slots: false, ..terms(&slots) };
    assert!(owes(&terms(&slots), "slots moved as a whole") && !owes(&old, "slots moved as a whole"));
    assert!(!owes(&old, "SWAPDB") && !owes(&old, "waits for a message"));
}

#[test]
fn of_three_sets_of_locks_that_are_left_one_is_looked_at() {
    let ground = ground(Kind::Restarts, |_| true);
    let terms = terms(&ground);
    let figures = figures_without(&terms, "");
    (0..3).for_each(|_| figures.begins(deposit::CHECK));
    assert!(missing(&terms, &figures).is_empty());
    figures.begins(deposit::CHECK);
    assert_eq!(missing(&terms, &figures), ["look at one of 3 locks left to be found again"]);
    let shorter = Terms { length: LONG_ENOUGH, ..terms };
    assert!(missing(&shorter, &figures).is_empty());
}

/// What is counted under one name and owed under another would never be missed, or always.
#[test]
fn each_name_in_the_table_is_one_that_is_counted_and_the_other_way_round() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let owed: BTreeSet<&str> = OWED.iter().flat_map(|(_, _, names)| *names).copied().collect();
    for name in &owed {
        assert!(sources.contains(&format!("\"{name}\"")), "{name:?} is never counted");
    }
    let calls = ["figures.met(\"", "figures.fault(\"", "world.fault(\"", "self.make(\"", "count(world, \""];
    for call in calls {
        let counted = sources.split(call).skip(1).filter_map(|rest| rest.split('"').next());
        let forgotten: Vec<&str> = counted.filter(|name| !owed.contains(name)).collect();
        assert!(forgotten.is_empty(), "{forgotten:?} can be met, and no run owes it");
    }
}

/// All of them but the table and its tests.
fn sources(folder: &Path) -> String {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let others = paths.filter(|path| !path.ends_with("owed") && !path.ends_with("owed.rs"));
    let read = |path: &Path| fs::read_to_string(path).expect("a source");
    others.map(|path| if path.is_dir() { sources(&path) } else { read(&path) }).collect()
}
