//! The time from the end of a lease to the next client's grant, with many locks and many other keys.

use std::time::Duration;

use support::{now_ms, now_us};

use crate::many::run_all;
use crate::place::{ON_TWO_CPUS, Place};
use crate::protocols::{Client, LOCK_BLOCK, LOCK_NOTIFY, Protocol, SET_NX_SCRIPT};
use crate::report::{Bar, Effort, Row, Section, headings};
use crate::statistics::Durations;

const MAX_P99_MS: f64 = 2.0;
/// The same locks end at the same times for every protocol.
const SEED: u64 = 5;

struct Plan {
    locks: usize,
    other_keys: usize,
    /// The leases end at random times between these, in milliseconds from the start.
    first_ms: i64,
    last_ms: i64,
}

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        locks: effort.choose(1_000, 100),
        other_keys: effort.choose(100_000, 10_000),
        first_ms: effort.choose(1_000, 300),
        last_ms: effort.choose(5_000, 700),
    };
    let ours = Protocol::Plain(LOCK_BLOCK);
    let runs = [
        (ours, false),
        (ours, true),
        (Protocol::Plain(LOCK_NOTIFY), false),
        (Protocol::Plain(SET_NX_SCRIPT), false),
        (Protocol::Redisson, false),
    ];
    let late = runs.map(|(protocol, others_end)| plan.late(protocol, others_end));
    let row = |((protocol, others_end), late): (&(Protocol, bool), &Durations)| {
        let suffix = if *others_end { ", while other keys expire" } else { "" };
        Row::new(format!("{}{suffix}", protocol.name()), [0.5, 0.99, 1.0].map(|quantile| late.quantile_ms(quantile)))
    };
    let p99 = late[0].quantile_ms(0.99).expect("grants");
    Section {
        title: "From the end of a lease to the next grant",
        method: format!(
            "{} locks are held until random times within {} ms, set with PXAT, and are never released. One client waits for each. The \
             server has {} other keys that expire later; in the second row a tenth of them expires in that time. The server keeps a key \
             through the millisecond of its end. {ON_TWO_CPUS}",
            plan.locks,
            plan.last_ms - plan.first_ms,
            plan.other_keys
        ),
        headings: headings(&["protocol", "p50, ms", "p99, ms", "longest, ms"]),
        rows: runs.iter().zip(&late).map(row).collect(),
        bars: vec![Bar::at_most("LOCK.ACQUIRE BLOCK, end of a lease to grant, p99, ms", p99, MAX_P99_MS)],
    }
}

impl Plan {
    fn late(&self, protocol: Protocol, others_end: bool) -> Durations {
        let place = Place::for_connections(self.locks * protocol.connections() + 2);
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut client = place.server.client();
        let mut times =
            |count: usize| -> Vec<i64> { (0..count).map(|_| random.i64(self.first_ms..self.last_ms)).collect() };
        let (of_others, of_locks) = (times(self.other_keys), times(self.locks));
        run_all(&mut client, self.other_keys, |key| {
            let ms = if others_end && key % 10 == 0 { of_others[key] } else { 3_600_000 };
            vec![format!("SET volatile-{key} something PX {ms}")]
        });
        let port = place.server.port();
        let clients: Vec<Client> =
            (0..self.locks).map(|number| place.block_on(protocol.connect(port, number))).collect();
        let start_ms = now_ms();
        run_all(&mut client, self.locks, |lock| protocol.held_by_another(&name(lock), start_ms + of_locks[lock]));
        let wait = |(lock, mut client): (usize, Client)| {
            let end_us = (start_ms + of_locks[lock]) * 1000;
            place.clients.spawn_local(async move {
                client.acquire(&name(lock)).await;
                let late = u64::try_from(now_us() - end_us).expect("a lock is not granted before its lease ends");
                Duration::from_micros(late)
            })
        };
        let tasks: Vec<_> = clients.into_iter().enumerate().map(wait).collect();
        place.run_until(async {
            let mut late = Durations::new();
            for task in tasks {
                late.record(task.await.expect("a client that was granted its lock"));
            }
            late
        })
    }
}

fn name(lock: usize) -> String {
    format!("door:{lock}")
}
