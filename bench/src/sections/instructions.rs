//! Server work for one lock taken and given back, uncontended, in instructions.

use support::Setup;

use crate::callgrind::{self, Count, Lengths, cycles};
use crate::protocols::{SetNx, scripts};
use crate::section::{Bar, Effort, Limit, Plot, Row, Section, Table};

const HEADINGS: [&str; 8] = [
    "cycle",
    "instructions per cycle",
    "repeats to, %",
    "between seeds, %",
    "x PING",
    "x SET + DEL",
    "x SET + EVALSHA",
    "x Redisson's scripts",
];

/// Of every way to lock.
struct Counts {
    ping: Count,
    del: Count,
    script: Count,
    lock: Count,
    reenter: Count,
    redisson: Count,
    latch: Count,
    /// None where the server does not know the command.
    delifeq: Option<Count>,
}

impl Counts {
    fn measure(lengths: Lengths) -> Self {
        let mut workloads = vec![
            cycles::ping(),
            cycles::set_and_del(),
            cycles::set_and_script(),
            cycles::acquire_and_release(),
            cycles::reenter_and_release(),
            cycles::redisson(),
            cycles::latch_deletion(lengths.longest()),
        ];
        if SetNx::delifeq_is_known(&mut Setup::new().start().client()) {
            workloads.push(cycles::set_and_delifeq());
        }
        let mut counted = callgrind::counts("instructions", &workloads, lengths).into_iter();
        let mut next = || counted.next().expect("a count of each");
        Self {
            ping: next(),
            del: next(),
            script: next(),
            lock: next(),
            reenter: next(),
            redisson: next(),
            latch: next(),
            delifeq: counted.next(),
        }
    }

    /// Redisson's four scripts without the two DEL that its client sends after them.
    fn redisson_scripts(&self) -> Count {
        self.redisson.with(&self.latch, |cycle, latch| cycle - 2.0 * latch)
    }

    fn table(&self) -> Table {
        let delifeq = self.delifeq.as_ref().map(|count| ("SET NX PX + DELIFEQ", count));
        let scripts = self.redisson_scripts();
        let rows = [("PING", &self.ping), ("SET NX PX + DEL", &self.del)].into_iter().chain(delifeq).chain([
            ("SET NX PX + EVALSHA (redis-py)", &self.script),
            ("LOCK.ACQUIRE + LOCK.RELEASE", &self.lock),
            ("Redisson: lock x 2, unlock x 2, DEL of the latches", &self.redisson),
            ("Redisson's scripts alone", &scripts),
            ("LOCK.REENTER x 2 + LOCK.RELEASE x 2", &self.reenter),
        ]);
        Table::new(HEADINGS, rows.map(|(label, count)| self.row(label, count)).collect())
    }

    fn row(&self, label: &str, count: &Count) -> Row {
        row(label, count, [&self.ping, &self.del, &self.script, &self.redisson_scripts()])
    }

    fn bars(&self) -> Vec<Bar> {
        let at_most = |what, count: Count, limit, aim: Option<f64>| Bar {
            aim: aim.map(Limit::AtMost),
            ..Bar::at_most(what, count.mean(), limit)
        };
        let reenter = self.reenter.over(&self.redisson_scripts());
        vec![
            at_most("ACQUIRE + RELEASE, x SET NX PX + DEL", self.lock.over(&self.del), 1.35, Some(1.25)),
            at_most("ACQUIRE + RELEASE, x SET NX PX + EVALSHA", self.lock.over(&self.script), 0.65, Some(0.60)),
            at_most("REENTER x 2 + RELEASE x 2, x Redisson's scripts", reenter, 0.50, None),
        ]
    }
}

/// What was counted of a cycle, and how many times that of each of the others it is.
pub(super) fn row(label: &str, count: &Count, others: [&Count; 4]) -> Row {
    let percent = |share: f64| 100.0 * share;
    let counted = [Some(count.mean()), count.again().map(percent), Some(percent(count.spread()))];
    let times = others.map(|other| Some(count.over(other).mean()));
    Row { label: label.to_owned(), cells: counted.into_iter().chain(times).collect() }
}

pub fn measure(effort: Effort) -> Section {
    let lengths = Lengths::of(effort);
    let counts = Counts::measure(lengths);
    Section {
        name: "instructions",
        title: "Server work for a lock that nobody else wants",
        method: method(lengths),
        table: counts.table(),
        bars: counts.bars(),
        plot: Some(Plot::Bars { column: 0, logarithmic: false }),
    }
}

fn method(lengths: Lengths) -> String {
    format!(
        "Instructions that the server's process executes per cycle, outside the kernel: counted by `valgrind \
         --tool=callgrind`, one connection, each command sent when the one before is answered. {} \
         Scripts: {}; {}; {}. Redisson's scripts alone are its cycle less two DEL of such a latch, counted by themselves.",
        lengths.difference_by_seed(),
        scripts::REDIS_PY_RELEASE.source,
        scripts::REDISSON_LOCK.source,
        scripts::REDISSON_UNLOCK.source,
    )
}
