//! What the module costs commands that are not its own.

use support::Reply;

use crate::callgrind::{self, Count, Lengths, Module, Step, Workload};
use crate::cycles::many;
use crate::section::{Bar, Effort, Limit, Plot, Row, Section, Table};

/// Connections beside the one that is served: waiting for a lock, or idle where there is no module.
pub const OTHERS: usize = 100;

const HEADINGS: [&str; 9] = [
    "command",
    "no module",
    "an empty module",
    "redis-lock",
    "empty / none",
    "redis-lock / none",
    "redis-lock / empty",
    "repeats to, %",
    "ratio between seeds, %",
];

/// One command that is measured with and without the module.
struct Case {
    name: &'static str,
    at_most: f64,
    workload: fn(cycles: u64) -> Workload,
}

/// DEL and EXPIRE may cost more: the module looks whether somebody waits for the key.
const CASES: [Case; 6] = [
    Case { name: "GET", at_most: 1.02, workload: get },
    Case { name: "DEL", at_most: 1.05, workload: del },
    Case { name: "SET", at_most: 1.02, workload: set },
    Case { name: "EXPIRE", at_most: 1.05, workload: expire },
    Case { name: "INCR", at_most: 1.02, workload: incr },
    Case { name: "HSET", at_most: 1.02, workload: hset },
];

fn ok() -> Reply {
    Reply::Status("OK".to_owned())
}

fn repeated(line: &'static str, answer: Reply) -> Workload {
    Workload::new(move |_| vec![Step::line(line, answer.clone())])
}

pub fn get(_cycles: u64) -> Workload {
    repeated("GET k", Reply::text("value")).prepared_by(vec![Step::line("SET k value", ok())])
}

fn set(_cycles: u64) -> Workload {
    repeated("SET k value", ok())
}

/// The keys are there beforehand.
pub fn del(cycles: u64) -> Workload {
    let set = |number| Step::line(&format!("SET k:{number} value"), ok());
    Workload::new(|number| vec![Step::line(&format!("DEL k:{number}"), Reply::Int(1))])
        .prepared_by((0..many(cycles)).map(set).collect())
}

fn expire(_cycles: u64) -> Workload {
    repeated("EXPIRE k 1000", Reply::Int(1)).prepared_by(vec![Step::line("SET k value", ok())])
}

fn incr(_cycles: u64) -> Workload {
    Workload::new(|number| vec![Step::line("INCR n", Reply::Int(number as i64 + 1))])
}

fn hset(_cycles: u64) -> Workload {
    repeated("HSET h field value", Reply::Int(0)).prepared_by(vec![Step::line("HSET h field value", Reply::Int(1))])
}

/// One command's counts.
struct Counts {
    without: Count,
    empty: Count,
    with: Count,
}

impl Counts {
    fn ratio(&self) -> Count {
        self.with.over(&self.without)
    }

    fn cells(&self) -> Vec<Option<f64>> {
        let again = self.without.again().zip(self.with.again()).map(|(without, with)| 100.0 * without.max(with));
        let means = [&self.without, &self.empty, &self.with].map(|count| Some(count.mean()));
        let ratios = [self.empty.over(&self.without), self.ratio(), self.with.over(&self.empty)];
        let spread = 100.0 * self.ratio().spread();
        [&means[..], &ratios.map(|ratio| Some(ratio.mean())), &[again, Some(spread)]].concat()
    }
}

pub fn measure(effort: Effort) -> Section {
    let lengths = Lengths::of(effort);
    // In short: one command that the module hears of, and one that it does not.
    let cases = effort.choose(&CASES[..], &CASES[..2]);
    let count = |what, prepare: &dyn Fn(Workload) -> Workload| {
        let workloads: Vec<_> = cases.iter().map(|case| prepare((case.workload)(lengths.longest()))).collect();
        callgrind::counts(what, &workloads, lengths).into_iter()
    };
    let without = count("no module", &|workload| workload.on(Module::None).beside_idle(OTHERS));
    let empty = count("empty module", &|workload| workload.on(Module::Empty).beside_waiting(OTHERS));
    let with = count("redis-lock", &|workload| workload.beside_waiting(OTHERS));
    let counts = without.zip(empty).zip(with).map(|((without, empty), with)| Counts { without, empty, with });
    let cases: Vec<(&Case, Counts)> = cases.iter().zip(counts).collect();
    let row = |(case, counts): &(&Case, Counts)| Row { label: case.name.to_owned(), cells: counts.cells() };
    let bar = |(case, counts): &(&Case, Counts)| Bar {
        what: format!("{} with the module, x without", case.name),
        value: counts.ratio().mean(),
        limit: Limit::AtMost(case.at_most),
        aim: None,
    };
    Section {
        name: "overhead",
        title: "What the module costs other commands",
        method: method(lengths),
        table: Table { headings: HEADINGS.map(str::to_owned).to_vec(), rows: cases.iter().map(row).collect() },
        bars: cases.iter().map(bar).collect(),
        plot: Some(Plot::Bars { column: 4, logarithmic: false }),
    }
}

fn method(lengths: Lengths) -> String {
    format!(
        "Instructions per command as above: without any module and beside {OTHERS} idle connections, and with redis-lock \
         beside {OTHERS} clients that wait for a lock that has nothing to do with the command. Between the two, what the \
         server itself spends on a module and its blocked clients: with one that does nothing else than block as many \
         (bench/baseline/peer.c). {}",
        lengths.difference_by_seed()
    )
}
