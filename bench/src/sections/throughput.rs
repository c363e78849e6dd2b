//! How many uncontended cycles of acquire and release a server does in a second, for every protocol.

use std::iter;
use std::time::Duration;

use indicatif::ProgressBar;
use support::{Client, Server};

use crate::engine::ground::{Ground, LEASE, ON_TWO_CPUS, gather};
use crate::engine::{Action, Engine, Event, Locks, Orders, Workload};
use crate::progress;
use crate::protocols::{Native, Ping, Protocol, Redisson, SetNx, SignalList};
use crate::section::{Bar, Effort, Plot, Row, Section, Table};
use crate::statistics::{median_if_any, median_ratio};

/// How many clients, and how many cycles each sends in one write.
struct Shape {
    clients: usize,
    depth: u32,
    heading: &'static str,
    /// What this module must reach, times SET NX + EVALSHA.
    least: f64,
}

const SHAPES: [Shape; 3] = [
    Shape { clients: 1, depth: 1, heading: "1 connection", least: 1.0 },
    Shape { clients: 50, depth: 1, heading: "50 connections", least: 1.0 },
    Shape { clients: 50, depth: 50, heading: "50 connections, 50 cycles in one write", least: 1.5 },
];

/// All protocols with all of their connections at a time.
const MOST_CONNECTIONS: usize = 1000;

/// The place of a protocol in [`protocols`].
const OURS: usize = 0;
const WITH_SCRIPT: usize = 1;

pub fn measure(effort: Effort) -> Section {
    let server = Ground::for_connections(MOST_CONNECTIONS).on_two_cpus();
    let protocols = protocols(&mut server.client());
    let rounds = effort.choose(15, 2);
    let span = Duration::from_millis(effort.choose(150, 20));
    let progress = progress::bar("throughput", rounds * SHAPES.len() * protocols.len());
    let mut rates: Vec<Vec<Vec<f64>>> = Vec::new();
    for shape in &SHAPES {
        rates.push(rates_of(&server, &protocols, shape, rounds, span, &progress));
    }
    Section {
        name: "throughput",
        title: "Uncontended cycles of acquire and release per second",
        method: method(span, rounds),
        table: table(&protocols, &rates),
        bars: SHAPES.iter().zip(&rates).map(|(shape, rates)| bar(shape, rates)).collect(),
        plot: Some(Plot::Bars { column: SHAPES.len() - 1, logarithmic: false }),
    }
}

fn method(span: Duration, rounds: usize) -> String {
    format!(
        "Each connection has a lock of its own, acquires it and releases it, over and over; a client waits for each answer, \
         or sends 50 cycles in one write and waits for all of their answers. PING stands for both commands. The protocols \
         take turns of {} ms in {rounds} rounds; the table has the medians, the bars are medians of the rounds' ratios. {ON_TWO_CPUS}",
        span.as_millis()
    )
}

fn protocols(client: &mut Client) -> Vec<&'static dyn Protocol> {
    let mut protocols: Vec<&'static dyn Protocol> = vec![
        &Native::FREE_MUTEX,
        &SetNx::WITH_SCRIPT,
        &Native::FREE_REENTRANT,
        &SignalList,
        &Redisson,
        &SetNx::WITH_DEL,
    ];
    if SetNx::delifeq_is_known(client) {
        protocols.push(&SetNx::WITH_DELIFEQ);
    }
    protocols.push(&Ping);
    protocols
}

/// For each protocol, the rate in each round; none where cycles cannot be sent ahead.
fn rates_of(
    server: &Server,
    protocols: &[&dyn Protocol],
    shape: &Shape,
    rounds: usize,
    span: Duration,
    progress: &ProgressBar,
) -> Vec<Vec<f64>> {
    let gather = |protocol: &&dyn Protocol| gather(server, *protocol, shape.clients, Locks::Each, LEASE);
    let mut engines: Vec<Engine> = protocols.iter().map(gather).collect();
    let mut rates = vec![Vec::new(); protocols.len()];
    for _ in 0..rounds {
        for ((engine, protocol), rates) in engines.iter_mut().zip(protocols).zip(&mut rates) {
            if shape.depth == 1 || protocol.can_be_sent_ahead() {
                rates.push(rate(engine, shape.depth, span));
            }
            progress.inc(1);
        }
    }
    rates
}

/// Cycles per second, of which none is left when it returns.
fn rate(engine: &mut Engine, depth: u32, span: Duration) -> f64 {
    let mut cycles = Cycles { depth, done: 0, over: false, busy: engine.clients() };
    engine.all(if depth == 1 { Action::Acquire } else { Action::Cycles(depth) });
    let mut took = engine.run(&mut cycles, span);
    cycles.over = true;
    took += engine.run(&mut cycles, Duration::MAX);
    cycles.done as f64 / took.as_secs_f64()
}

struct Cycles {
    depth: u32,
    done: u64,
    /// No cycle is to be begun any more.
    over: bool,
    /// Clients with a cycle under way.
    busy: usize,
}

impl Workload for Cycles {
    fn on(&mut self, client: usize, event: Event, orders: &mut Orders) {
        if event == Event::Granted {
            orders.give(client, Action::Release);
            return;
        }
        self.done += u64::from(self.depth);
        if self.over {
            self.busy -= 1;
        } else {
            orders.give(client, if self.depth == 1 { Action::Acquire } else { Action::Cycles(self.depth) });
        }
    }

    fn is_done(&self) -> bool {
        self.busy == 0
    }
}

fn table(protocols: &[&dyn Protocol], rates: &[Vec<Vec<f64>>]) -> Table {
    let row = |(number, protocol): (usize, &&dyn Protocol)| Row {
        label: protocol.name().to_owned(),
        cells: rates.iter().map(|rates| median_if_any(&rates[number])).collect(),
    };
    let headings = iter::once("cycles per second").chain(SHAPES.iter().map(|shape| shape.heading));
    Table::new(headings, protocols.iter().enumerate().map(row).collect())
}

fn bar(shape: &Shape, rates: &[Vec<f64>]) -> Bar {
    let what = format!("Cycles, times those of SET NX + EVALSHA, {}", shape.heading);
    Bar::at_least(what, median_ratio(&rates[OURS], &rates[WITH_SCRIPT]), shape.least)
}
