//! The cost of the module for commands of other clients.

use crate::callgrind::cycles::{self, OTHERS};
use crate::callgrind::{self, Count, Lengths, Line, Module, Workload};
use crate::report::{Bar, Effort, Row, Section, headings};

/// Commands in one write. It divides the numbers of cycles.
const BATCH: usize = 20;

/// A command that is measured with and without the module.
struct Case {
    name: &'static str,
    /// The command, and one before all cycles. None for DEL, which needs many keys.
    lines: Option<[Line; 2]>,
    at_most: f64,
}

const SET: Line = ("SET k value", "OK");

/// DEL and EXPIRE may cost more, because the module checks whether a client waits for the key.
const CASES: [Case; 6] = [
    Case { name: "GET", lines: Some([("GET k", "value"), SET]), at_most: 1.02 },
    Case { name: "DEL", lines: None, at_most: 1.05 },
    Case { name: "SET", lines: Some([("SET k value", "OK"), SET]), at_most: 1.02 },
    Case { name: "EXPIRE", lines: Some([("EXPIRE k 1000", "1"), SET]), at_most: 1.05 },
    Case { name: "INCR", lines: Some([("INCR n", "{next}"), SET]), at_most: 1.02 },
    Case { name: "HSET", lines: Some([("HSET h field value", "0"), ("HSET h field value", "1")]), at_most: 1.02 },
];

impl Case {
    fn workload(&self, cycles: u64) -> Workload {
        match self.lines {
            None => cycles::del(cycles),
            Some([line, before]) => Workload::new(&[line]).prepared_by(before, 1),
        }
    }
}

pub fn measure(effort: Effort) -> Section {
    let lengths = Lengths::of(effort);
    // The short form has one command whose event the module receives, and one without.
    let cases: &[Case] = effort.choose(&CASES[..], &CASES[..2]);
    let runs: Vec<(&Case, usize)> = cases.iter().flat_map(|case| [(case, 1), (case, BATCH)]).collect();
    let three = |&(case, batch): &(&Case, usize)| {
        let workload = || case.workload(lengths.longest()).in_batches_of(batch);
        let without = workload().on(Module::None).with_idle(OTHERS);
        [without, workload().on(Module::Empty).with_waiting(OTHERS), workload().with_waiting(OTHERS)]
    };
    let workloads: Vec<Workload> = runs.iter().flat_map(three).collect();
    let counts = callgrind::counts(&workloads, lengths);
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for ((case, batch), counts) in runs.iter().zip(counts.chunks(3)) {
        let label = if *batch == 1 { case.name.to_owned() } else { format!("{}, {BATCH} in one write", case.name) };
        let ratio = counts[2].over(&counts[0]).mean();
        rows.push(Row::new(&label, counts.iter().map(Count::mean).chain([ratio, counts[2].over(&counts[1]).mean()])));
        // A command that comes alone also has the cost of an iteration of the event loop with any module.
        if *batch > 1 {
            bars.push(Bar::at_most(format!("{label}, with the module, x without"), ratio, case.at_most));
        }
    }
    let method = format!(
        "Instructions per command. {} Without a module there are {OTHERS} idle connections, with one as many that wait for another \
         lock. The empty module does nothing but block them (bench/baseline/peer.c).",
        lengths.method()
    );
    Section {
        title: "Cost of the module for other commands",
        method,
        headings: headings(&["command", "no module", "empty module", "redis-lock", "x none", "x empty"]),
        rows,
        bars,
    }
}
