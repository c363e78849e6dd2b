//! On whose account the server's instructions are, for cycles with this module and without.

use std::collections::BTreeMap;
use std::iter;

use support::module_under_test;

use crate::callgrind::commands::{self, OTHERS};
use crate::callgrind::{self, Calls, Function, Lengths, Profile, Workload, cycles, shares};
use crate::section::{Effort, Row, Section, Table};

/// The module's own functions that are shown: those of the highest cost, where its binary has names.
const HEAVIEST: usize = 12;

/// Makes a workload of so many cycles.
type MakeWorkload = fn(u64) -> Workload;

/// The measured cycles, with their headings. The last two are not the module's commands, but it hears of one of them.
const CYCLES: [(&str, MakeWorkload); 8] = [
    ("SET + DEL", |_| cycles::set_and_del()),
    ("ACQUIRE + RELEASE", |_| cycles::acquire_and_release()),
    ("REENTER x 2 + RELEASE x 2", |_| cycles::reenter_and_release()),
    ("ZADD + PEXPIREAT + ZREM", |_| shares::zadd_and_zrem()),
    ("SHARE + RELEASE", |_| shares::share_and_release()),
    ("SHARE + RELEASE beside 9", |_| shares::beside_holders(shares::share_and_release(), 9)),
    ("GET beside waiters", |cycles| commands::get(cycles).beside_waiting(OTHERS)),
    ("DEL beside waiters", |cycles| commands::del(cycles).beside_waiting(OTHERS)),
];

/// Calls per cycle below which a function has to do with start and end, and not with the cycles.
const SELDOM: f64 = 0.01;

/// A number per cycle of [`CYCLES`].
type Cells = Vec<Option<f64>>;

pub fn measure(effort: Effort) -> Section {
    let lengths = Lengths::of(effort);
    let module = module_under_test().file_name().expect("a file").to_string_lossy().into_owned();
    let graphs = callgrind::graphs("profile", &CYCLES.map(|(_, workload)| workload(lengths.longest())), lengths);
    let profiles: Vec<Profile> = graphs.iter().map(|graph| Profile::of(graph, &module)).collect();
    Section {
        name: "profile",
        title: "Where the instructions go",
        method: method(lengths),
        table: Table::new(
            iter::once("instructions").chain(CYCLES.iter().map(|(heading, _)| *heading)),
            [shares(&profiles), calls(&profiles), functions(&profiles)].concat(),
        ),
        bars: Vec::new(),
        plot: None,
    }
}

fn method(lengths: Lengths) -> String {
    format!(
        "Instructions per cycle by callgrind's graph of calls. The first rows add up to the cycle: the server around the \
         command, the module by itself, what the server's API does for it, and what it calls in libraries; a function \
         with several callers is split among them as the costs of its calls are. Then each API function with all it \
         calls, also back into the module, and how often it is called. The module's own functions follow where its \
         binary has names: build with `CARGO_PROFILE_RELEASE_STRIP=none`. {}",
        lengths.difference()
    )
}

fn shares(profiles: &[Profile]) -> Vec<Row> {
    let row = |label: &str, cost: fn(&Profile) -> f64| Row {
        label: label.to_owned(),
        cells: profiles.iter().map(|profile| Some(cost(profile))).collect(),
    };
    vec![
        row("server around the command", |profile| profile.share.server),
        row("module itself", |profile| profile.share.module),
        row("server API called by the module", |profile| profile.share.api),
        row("libraries called by the module", |profile| profile.share.libraries),
    ]
}

fn calls(profiles: &[Profile]) -> Vec<Row> {
    let cells = |function: &Function, figure: fn(&Calls) -> f64| -> Cells {
        profiles
            .iter()
            .map(|profile| called(profile).find(|(name, _)| *name == function).map(|(_, calls)| figure(calls)))
            .collect()
    };
    heaviest(profiles.iter().map(|profile| called(profile).map(|(function, calls)| (function, calls.inclusive))))
        .into_iter()
        .flat_map(|function| {
            let name = &function.name;
            [
                Row { label: format!("API: {name}"), cells: cells(function, |calls| calls.inclusive) },
                Row { label: format!("API: {name}, calls"), cells: cells(function, |calls| calls.count) },
            ]
        })
        .collect()
}

fn called(profile: &Profile) -> impl Iterator<Item = (&Function, &Calls)> {
    profile.api.iter().filter(|(_, calls)| calls.count >= SELDOM)
}

fn functions(profiles: &[Profile]) -> Vec<Row> {
    let cells = |function| profiles.iter().map(|profile| profile.module.get(function).copied()).collect();
    heaviest(profiles.iter().map(|profile| profile.module.iter().map(|(function, own)| (function, *own))))
        .into_iter()
        .filter(|function| !function.name.starts_with("0x"))
        .take(HEAVIEST)
        .map(|function| Row { label: format!("module: {}", function.name), cells: cells(function) })
        .collect()
}

/// All functions, those first that cost most in any profile.
fn heaviest<'a>(profiles: impl Iterator<Item = impl Iterator<Item = (&'a Function, f64)>>) -> Vec<&'a Function> {
    let mut highest = BTreeMap::<&Function, f64>::new();
    for (function, cost) in profiles.flatten() {
        let entry = highest.entry(function).or_default();
        *entry = entry.max(cost);
    }
    let mut functions: Vec<&Function> = highest.keys().copied().collect();
    functions.sort_by(|one, other| highest[other].total_cmp(&highest[one]));
    functions
}
