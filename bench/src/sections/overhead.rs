//! What the module costs commands that are not its own.

use crate::callgrind::commands::{self, OTHERS};
use crate::callgrind::{self, Count, Lengths, Module, Workload};
use crate::section::{Bar, Effort, Plot, Row, Section, Table};

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

/// Commands in one write. It divides the numbers of cycles.
const BATCH: usize = 20;

/// DEL and EXPIRE may cost more: the module looks whether somebody waits for the key.
const CASES: [Case; 6] = [
    Case { name: "GET", at_most: 1.02, workload: commands::get },
    Case { name: "DEL", at_most: 1.05, workload: commands::del },
    Case { name: "SET", at_most: 1.02, workload: commands::set },
    Case { name: "EXPIRE", at_most: 1.05, workload: commands::expire },
    Case { name: "INCR", at_most: 1.02, workload: commands::incr },
    Case { name: "HSET", at_most: 1.02, workload: commands::hset },
];

/// One command's counts, alone or in batches.
struct Counts {
    case: &'static Case,
    batch: usize,
    without: Count,
    empty: Count,
    with: Count,
}

impl Counts {
    fn ratio(&self) -> Count {
        self.with.over(&self.without)
    }

    fn label(&self) -> String {
        if self.batch == 1 { self.case.name.to_owned() } else { format!("{}, {BATCH} in one write", self.case.name) }
    }

    fn row(&self) -> Row {
        Row { label: self.label(), cells: self.cells() }
    }

    fn bar(&self) -> Bar {
        let what = format!("{}, with the module, x without", self.label());
        Bar::at_most(what, self.ratio().mean(), self.case.at_most)
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
    let cases: &'static [Case] = effort.choose(&CASES[..], &CASES[..2]);
    let runs: Vec<(&'static Case, usize)> = cases.iter().flat_map(|case| [(case, 1), (case, BATCH)]).collect();
    let workload = |&(case, batch): &(&Case, usize)| (case.workload)(lengths.longest()).in_batches_of(batch);
    let three = |run| {
        let without = workload(run).on(Module::None).beside_idle(OTHERS);
        let empty = workload(run).on(Module::Empty).beside_waiting(OTHERS);
        [without, empty, workload(run).beside_waiting(OTHERS)]
    };
    let workloads: Vec<Workload> = runs.iter().flat_map(three).collect();
    let mut counted = callgrind::counts("overhead", &workloads, lengths).into_iter();
    let mut next = || counted.next().expect("a count of each");
    let counts: Vec<Counts> = runs
        .iter()
        .map(|&(case, batch)| Counts { case, batch, without: next(), empty: next(), with: next() })
        .collect();
    Section {
        name: "overhead",
        title: "What the module costs other commands",
        method: method(lengths),
        table: Table::new(HEADINGS, counts.iter().map(Counts::row).collect()),
        // Alone in its round, a command also pays for what a round costs with any module, which the bars cannot be about.
        bars: counts.iter().filter(|counts| counts.batch > 1).map(Counts::bar).collect(),
        plot: Some(Plot::Bars { column: 4, logarithmic: false }),
    }
}

fn method(lengths: Lengths) -> String {
    format!(
        "Instructions per command as above: without any module and beside {OTHERS} idle connections, and with redis-lock \
         beside {OTHERS} clients that wait for a lock that has nothing to do with the command. Between the two, what the \
         server itself spends on a module and its blocked clients: with one that does nothing else than block as many \
         (bench/baseline/peer.c). Each command comes alone, so that it bears the cost of a whole round of the server's \
         loop, and {BATCH} in one write, as rounds are filled on a busy server; the bars are held to the latter. {}",
        lengths.difference_by_seed()
    )
}
