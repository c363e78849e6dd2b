//! How long it takes from the end of a lease to the next client's grant, with many locks and many other keys that end.

use std::time::Duration;

use hdrhistogram::Histogram;
use support::{Client, Server, now_ms, now_us};

use crate::engine::ground::{Ground, gather};
use crate::engine::{Action, Event, Locks, Orders, Workload};
use crate::progress;
use crate::protocols::{CONTENDERS, Lease, Protocol};
use crate::section::{Bar, Effort, Plot, Row, Section, Table};
use crate::statistics::{quantile_us, record, spans};

const MOST_P99_MS: f64 = 2.0;

/// Commands in one write.
const BATCH: usize = 1000;
/// The same locks end at the same times for every protocol.
const SEED: u64 = 5;

/// What becomes of the other keys meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Stay,
    /// One in ten ends.
    End,
}

struct Plan {
    locks: usize,
    other_keys: usize,
    /// The leases end at random between these, in milliseconds from the start; the clients wait from before the first.
    first_ms: i64,
    last_ms: i64,
    /// What every client asks for. Those that wait as long as their own lease have to wait longer than the last lasts.
    lease: Lease,
}

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        locks: effort.choose(1_000, 100),
        other_keys: effort.choose(100_000, 10_000),
        first_ms: effort.choose(1_000, 300),
        last_ms: effort.choose(5_000, 700),
        lease: effort.choose(6_000, 1_000),
    };
    // This module once more, last, while other keys end as well.
    let runs: Vec<(&dyn Protocol, Others)> =
        CONTENDERS.iter().map(|protocol| (*protocol, Others::Stay)).chain([(CONTENDERS[0], Others::End)]).collect();
    let seen = progress::each("lease_end", &runs, |(protocol, others)| plan.watch(*protocol, *others));
    let p99_ms =
        seen.first().and_then(|spans| quantile_us(spans, 0.99)).expect("a client that was granted a lock") / 1000.0;
    Section {
        name: "lease_end",
        title: "From the end of a lease to the next grant",
        method: method(&plan),
        table: table(&runs, &seen),
        bars: vec![Bar::at_most("End of a lease to grant, p99, ms", p99_ms, MOST_P99_MS)],
        plot: Some(Plot::Bars { column: 1, logarithmic: true }),
    }
}

fn method(plan: &Plan) -> String {
    format!(
        "{} locks are held by somebody who never releases them, until times that were set with PXAT, at random within {} \
         ms; one client waits for each. The time runs from that end to the reading of the grant, by the wall clock that \
         server and client share. The server keeps a key through the millisecond of its end, so about 1 ms is inherent. \
         Beside them the server has {} other keys with a time-out that is far off; in the last row a tenth of them ends \
         meanwhile, which is work of the server's own. python-redis-lock \
         sends no signal when a lease ends: its client waits as long as its own lease would last, {} s here. So many clients \
         that poll every millisecond ask more than a server can answer.",
        plan.locks,
        plan.last_ms - plan.first_ms,
        plan.other_keys,
        plan.lease / 1000
    )
}

impl Plan {
    fn watch(&self, protocol: &dyn Protocol, others: Others) -> Histogram<u64> {
        let server = Ground::for_connections(self.locks * protocol.lines());
        let mut random = fastrand::Rng::with_seed(SEED);
        self.fill(&server, others, &mut random);
        let mut engine = gather(&server, protocol, self.locks, Locks::Each, self.lease);
        let start_ms = now_ms();
        let ends_ms: Vec<i64> = (0..self.locks).map(|_| start_ms + random.i64(self.first_ms..self.last_ms)).collect();
        let holds = ends_ms
            .iter()
            .enumerate()
            .flat_map(|(client, end_ms)| protocol.held_by_another(&Locks::Each.name(client), *end_ms));
        send_all(&mut server.client(), holds);
        engine.all(Action::Acquire);
        let mut ends = Ends { waiting: ends_ms.len(), ends_ms, seen: spans() };
        // Whoever waits for his own lease's length begins to wait right away.
        let until = self.lease + 3_000;
        engine.run(&mut ends, Duration::from_millis(until.into()));
        assert_eq!(ends.waiting, 0, "{}: clients that were not granted a lock whose lease is over", protocol.name());
        ends.seen
    }

    /// Keys that have nothing to do with locks.
    fn fill(&self, server: &Server, others: Others, random: &mut fastrand::Rng) {
        let keys = (0..self.other_keys).map(|key| {
            let ends = others == Others::End && key % 10 == 0;
            let span_ms = if ends { random.i64(self.first_ms..self.last_ms) } else { 3_600_000 };
            format!("SET volatile-{key} something PX {span_ms}")
        });
        send_all(&mut server.client(), keys);
    }
}

/// Sends commands many at a time, and reads what they are answered.
fn send_all(client: &mut Client, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    for batch in lines.chunks(BATCH) {
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        client.send_together(&batch);
        for line in batch {
            let reply = client.receive();
            assert!(reply == "OK" || reply == 1, "{line} is answered {reply:?}");
        }
    }
}

/// What each client waits for, and how late it came.
struct Ends {
    ends_ms: Vec<i64>,
    waiting: usize,
    seen: Histogram<u64>,
}

impl Workload for Ends {
    fn on(&mut self, client: usize, event: Event, _orders: &mut Orders) {
        assert_eq!(event, Event::Granted, "nobody does anything but wait");
        let late_us = now_us() - self.ends_ms[client] * 1000;
        let late_us = u64::try_from(late_us).expect("a lock is not granted before its lease is over");
        record(&mut self.seen, Duration::from_micros(late_us));
        self.waiting -= 1;
    }

    fn is_done(&self) -> bool {
        self.waiting == 0
    }
}

fn table(runs: &[(&dyn Protocol, Others)], seen: &[Histogram<u64>]) -> Table {
    let milliseconds = |spans: &Histogram<u64>, quantile| quantile_us(spans, quantile).map(|us| us / 1000.0);
    let label = |protocol: &dyn Protocol, others| match others {
        Others::Stay => protocol.name().to_owned(),
        Others::End => format!("{}, while other keys end", protocol.name()),
    };
    let row = |((protocol, others), spans): (&(&dyn Protocol, Others), &Histogram<u64>)| Row {
        label: label(*protocol, *others),
        cells: [0.5, 0.99, 1.0].map(|quantile| milliseconds(spans, quantile)).to_vec(),
    };
    let headings = ["protocol", "p50, ms", "p99, ms", "longest, ms"];
    Table::new(headings, runs.iter().zip(seen).map(row).collect())
}
