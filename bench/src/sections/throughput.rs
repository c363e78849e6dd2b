//! Cycles of acquire and release per second, without contention.

use std::time::{Duration, Instant};

use crate::place::{ON_TWO_CPUS, Place};
use crate::protocols::{Client, LOCK, PING, Protocol, REENTER, SET_NX_DEL, SET_NX_SCRIPT, compare_and_delete};
use crate::report::{Bar, Effort, Row, Section, headings};
use crate::statistics::{median, median_ratio};

/// The number of clients, and of cycles that each sends in one write; and the least rate of this module, x SET NX + EVALSHA.
struct Shape {
    clients: usize,
    depth: usize,
    heading: &'static str,
    at_least: f64,
}

const SHAPES: [Shape; 3] = [
    Shape { clients: 1, depth: 1, heading: "1 connection", at_least: 1.0 },
    Shape { clients: 50, depth: 1, heading: "50 connections", at_least: 1.0 },
    Shape { clients: 50, depth: 50, heading: "50 connections, 50 cycles in one write", at_least: 1.5 },
];
const MAX_CONNECTIONS: usize = 200;

pub fn measure(effort: Effort) -> Section {
    let (rounds, span) = (effort.choose(15, 2), Duration::from_millis(effort.choose(150, 20)));
    let place = Place::for_connections(MAX_CONNECTIONS);
    let mut protocols = vec![("LOCK.ACQUIRE", LOCK), ("SET NX + EVALSHA (redis-py)", SET_NX_SCRIPT)];
    protocols.extend([("LOCK.REENTER", REENTER), ("SET NX + DEL", SET_NX_DEL)]);
    protocols
        .extend(compare_and_delete(&mut place.server.client()).map(|plain| ("SET NX + compare-and-delete", plain)));
    protocols.push(("PING x 2", PING));
    // By protocol and shape, in each round.
    let mut rates = vec![vec![Vec::new(); SHAPES.len()]; protocols.len()];
    for _ in 0..rounds {
        for (number, shape) in SHAPES.iter().enumerate() {
            for ((_, plain), rates) in protocols.iter().zip(&mut rates) {
                rates[number].push(rate(&place, Protocol::Plain(*plain), shape, span));
            }
        }
    }
    let row = |((name, _), rates): (&(&str, _), &Vec<Vec<f64>>)| {
        Row::new(*name, rates.iter().map(|rates| median(rates.iter().copied())))
    };
    let bar = |(number, shape): (usize, &Shape)| {
        let what = format!("LOCK.ACQUIRE, x SET NX + EVALSHA, {}", shape.heading);
        Bar::at_least(what, median_ratio(&rates[0][number], &rates[1][number]), shape.at_least)
    };
    Section {
        title: "Cycles of acquire and release per second, without contention",
        method: format!(
            "Each connection acquires and releases a lock of its own. It waits for each reply, or sends 50 cycles in one write and \
             waits for all replies. The protocols take turns of {span:?} in {rounds} rounds. The table has medians, and the limits are \
             for medians of the ratios of each round. {ON_TWO_CPUS}"
        ),
        headings: headings(&[&["cycles per second"], &SHAPES.map(|shape| shape.heading)[..]].concat()),
        rows: protocols.iter().zip(&rates).map(row).collect(),
        bars: SHAPES.iter().enumerate().map(bar).collect(),
    }
}

fn rate(place: &Place, protocol: Protocol, shape: &Shape, span: Duration) -> f64 {
    let clients: Vec<Client> =
        (0..shape.clients).map(|number| place.block_on(protocol.connect(place.server.port(), number))).collect();
    let (start, depth) = (Instant::now(), shape.depth);
    let tasks: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, client)| {
            place.clients.spawn_local(cycles(client, format!("door:{number}"), depth, start + span))
        })
        .collect();
    let done: usize = place.run_until(async {
        let mut done = 0;
        for task in tasks {
            done += task.await.expect("a client that works");
        }
        done
    });
    done as f64 / start.elapsed().as_secs_f64()
}

/// Returns the number of cycles until `end`.
async fn cycles(client: Client, lock: String, depth: usize, end: Instant) -> usize {
    let Client::Plain(mut client) = client else { return 0 };
    let mut done = 0;
    while Instant::now() < end {
        client.cycles(&lock, depth).await;
        done += depth;
    }
    done
}
