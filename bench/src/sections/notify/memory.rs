//! What a request that waits for a message takes in the server's memory.

use std::time::Duration;

use support::Setup;

use super::crowd::{Crowd, key, token};
use crate::engine::Locks;
use crate::progress;
use crate::section::{Bar, Effort, Row, Section, Table};
use crate::server_memory::ServerMemory;

const MOST_BYTES: f64 = 400.0;

struct Plan {
    counts: [usize; 2],
    /// How long the server's memory must stay the same to count as settled: buffers of idle clients are given back after two
    /// seconds.
    calm: Duration,
}

/// So many requests, for one lock or for a lock each.
struct Case {
    count: usize,
    locks: Locks,
}

struct Bytes {
    all: f64,
    /// The length of what each request names and nobody else does.
    named: f64,
}

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        counts: effort.choose([1_000, 1_000_000], [100, 10_000]),
        calm: Duration::from_millis(effort.choose(4_000, 200)),
    };
    let cases: Vec<Case> = [Locks::One, Locks::Each]
        .into_iter()
        .flat_map(|locks| plan.counts.map(|count| Case { count, locks }))
        .collect();
    let bytes = progress::each("notify_memory", &cases, |case| case.bytes(plan.calm));
    let row = |(case, bytes): (&Case, &Bytes)| Row {
        label: case.label(),
        cells: [bytes.all, bytes.named, bytes.all - bytes.named].map(Some).to_vec(),
    };
    let bar = |(case, bytes): (&Case, &Bytes)| {
        let what = format!("NOTIFY: {}, bytes beyond key and token", case.label());
        Bar::at_most(what, bytes.all - bytes.named, MOST_BYTES)
    };
    Section {
        name: "notify_memory",
        title: "Memory of a request that waits for a message",
        method: method(),
        table: Table::new(
            ["what", "bytes", "key and token", "beyond them"],
            cases.iter().zip(&bytes).map(row).collect(),
        ),
        bars: cases.iter().zip(&bytes).map(bar).collect(),
        plot: None,
    }
}

fn method() -> String {
    format!(
        "`used_memory` of the server per request with NOTIFY, once it has settled; all of one connection and on one \
         channel. Each has a lease and a time to wait, and the locks are held with a lease. *Key and token* are the bytes \
         that a request names and no other does: its token of {}, and where each waits for a lock of its own a key of {}. \
         One request has come and gone before, since the server begins its statistics of a command when it runs for the \
         first time.",
        token(0).len(),
        key(Locks::Each, 0).len()
    )
}

impl Case {
    fn label(&self) -> String {
        let what = if self.locks == Locks::One { "for one lock" } else { "for a lock each" };
        format!("{} requests {what}", self.count)
    }

    fn bytes(&self, calm: Duration) -> Bytes {
        let Self { count, locks } = *self;
        let server = Setup::new().config(&format!("lock.max-waiters {count}")).start();
        let mut crowd = Crowd::open(&server, locks, count);
        crowd.come_and_go();
        let mut memory = ServerMemory::of(&server);
        let before = memory.settled(calm);
        crowd.join(count);
        let all = (memory.settled(calm) - before) / count as f64;
        let key = if locks == Locks::One { 0 } else { key(locks, 0).len() };
        Bytes { all, named: (key + token(0).len()) as f64 }
    }
}
