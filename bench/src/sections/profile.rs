//! The parts of the server that execute the instructions of a cycle.

use std::collections::BTreeMap;

use crate::callgrind::cycles::{self, OTHERS};
use crate::callgrind::{self, Lengths, Profile, Workload};
use crate::report::{Effort, Row, Section, headings};

/// The functions of the API that are shown.
const SHOWN: usize = 8;

pub fn measure(effort: Effort) -> Section {
    let lengths = Lengths::of(effort);
    let cycles: [(&str, Workload); 5] = [
        ("ACQUIRE + RELEASE", cycles::acquire_and_release()),
        ("REENTER x 2 + RELEASE x 2", cycles::reenter_and_release()),
        ("SHARE LIMIT + RELEASE", cycles::permit_and_release()),
        ("the same, 9 other shares", cycles::with_nine_holders(cycles::permit_and_release())),
        ("DEL with waiters", cycles::del(lengths.longest()).with_waiting(OTHERS)),
    ];
    let (names, workloads): (Vec<_>, Vec<_>) = cycles.into_iter().unzip();
    let profiles = callgrind::profiles(&workloads, lengths);
    let row = |label: &str, cost: &dyn Fn(&Profile) -> f64| Row::new(label, profiles.iter().map(cost));
    let mut rows = vec![
        row("server around the commands", &Profile::server),
        row("the module itself", &|profile| profile.module),
        row("API of the server", &Profile::all_api),
        row("libraries", &|profile| profile.libraries),
    ];
    for function in most_expensive(&profiles).into_iter().take(SHOWN) {
        let cells = profiles.iter().map(|profile| profile.api.get(function).copied());
        rows.push(Row::new(format!("API: {function}"), cells));
    }
    Section {
        title: "Where the instructions go",
        method: format!("{} A function of the API has all that it calls.", lengths.method()),
        headings: headings(&[&["instructions"], &names[..]].concat()),
        rows,
        bars: Vec::new(),
    }
}

fn most_expensive(profiles: &[Profile]) -> Vec<&str> {
    let mut highest = BTreeMap::<&str, f64>::new();
    for (function, cost) in profiles.iter().flat_map(|profile| &profile.api) {
        let entry = highest.entry(function).or_default();
        *entry = entry.max(*cost);
    }
    let mut functions: Vec<&str> = highest.keys().copied().collect();
    functions.sort_by(|one, other| highest[other].total_cmp(&highest[one]));
    functions
}
