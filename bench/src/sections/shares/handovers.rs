//! How often the permits of a semaphore go from one client to the next, with far more clients than permits.

use std::time::Duration;

use indicatif::ProgressBar;

use crate::engine::Locks;
use crate::engine::contention::Return;
use crate::engine::crowd::Crowd;
use crate::engine::ground::{Ground, ON_TWO_CPUS, PingLine};
use crate::progress;
use crate::protocols::{Native, PERMITS, PolledPermit, Protocol, RedissonPermit};
use crate::section::{Bar, Effort, Plot, Row, Section, Table};
use crate::statistics::{median, median_ratio};

const LEAST_PER_PING: f64 = 0.6;
const LEAST_FAIRNESS: f64 = 0.999;

const HEADINGS: [&str; 5] =
    ["protocol", "hand-overs per second", "PING round trips per second", "hand-overs per PING", "fairness"];

/// Every way to take a permit, and when its clients come back. This module's own are first.
const WAYS: [(&dyn Protocol, Return); 4] = [
    (&Native::PERMIT, Return::AtOnce),
    (&Native::PERMIT, Return::InOneWrite),
    (&PolledPermit, Return::AtOnce),
    (&RedissonPermit, Return::AtOnce),
];

struct Plan {
    clients: usize,
    /// How long it takes at most until every client has had its turn and the measurement begins.
    warm_up: Duration,
    rounds: usize,
    span: Duration,
    /// Turns for everybody to see how fair it is, and how long to wait for them at most.
    turns: u64,
    at_most: Duration,
}

/// Round by round.
struct Seen {
    hand_overs: Vec<f64>,
    pings: Vec<f64>,
    fairness: f64,
}

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        clients: effort.choose(1_000, 100),
        warm_up: Duration::from_millis(effort.choose(3_000, 300)),
        rounds: effort.choose(7, 2),
        span: Duration::from_millis(effort.choose(300, 30)),
        turns: effort.choose(30, 5),
        at_most: Duration::from_millis(effort.choose(10_000, 500)),
    };
    let progress = progress::bar("share_handovers", WAYS.len());
    let seen = WAYS.map(|(protocol, comes_back)| plan.watch(protocol, comes_back, &progress));
    Section {
        name: "share_handovers",
        title: "Hand-overs of the permits of a semaphore",
        method: method(&plan),
        table: Table::new(HEADINGS, WAYS.iter().zip(&seen).map(|(way, seen)| row(way, seen)).collect()),
        bars: bars(&plan, &seen),
        plot: Some(Plot::Bars { column: 0, logarithmic: true }),
    }
}

impl Plan {
    /// Between its rounds everybody waits, and the server is free for PING.
    fn watch(&self, protocol: &dyn Protocol, comes_back: Return, progress: &ProgressBar) -> Seen {
        let server = Ground::for_connections(self.clients * protocol.lines() + 1).on_two_cpus();
        let locks = Locks::Shared(PERMITS);
        let mut crowd = Crowd::gather(&server, protocol, self.clients, locks, comes_back, self.warm_up);
        let mut ping = PingLine::new(&server);
        let (mut hand_overs, mut pings) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            pings.push(ping.rate(self.span));
            hand_overs.push(crowd.rate(self.span));
        }
        progress.inc(1);
        Seen { hand_overs, pings, fairness: crowd.fairness(self.turns, self.at_most) }
    }
}

impl Seen {
    fn per_ping(&self) -> f64 {
        median_ratio(&self.hand_overs, &self.pings)
    }
}

fn method(plan: &Plan) -> String {
    format!(
        "{} clients stand in one line for {PERMITS} permits. Each takes one, gives it back at once and asks again when it has \
         read the answer, or in the same write. Counted is every grant to another client than the one before, and the engine \
         checks that no more than {PERMITS} clients hold a permit. Medians of {} rounds of {} ms, each after as long a round \
         of PING on one connection to the same server, and of the rounds' ratios. Fairness is Jain's index of how often each \
         client got a permit in {} turns of everybody, or as many as there were in {} s. {ON_TWO_CPUS}",
        plan.clients,
        plan.rounds,
        plan.span.as_millis(),
        plan.turns,
        plan.at_most.as_secs_f64()
    )
}

fn row((protocol, comes_back): &(&dyn Protocol, Return), seen: &Seen) -> Row {
    let middle = |all: &[f64]| Some(median(all.iter().copied()));
    let how = if *comes_back == Return::InOneWrite { ", in one write" } else { "" };
    Row {
        label: format!("{}{how}", protocol.name()),
        cells: vec![middle(&seen.hand_overs), middle(&seen.pings), Some(seen.per_ping()), Some(seen.fairness)],
    }
}

fn bars(plan: &Plan, seen: &[Seen]) -> Vec<Bar> {
    let Some(ours) = seen.first() else { return Vec::new() };
    let among = format!("{PERMITS} permits, {} clients", plan.clients);
    vec![
        Bar::at_least(format!("Hand-overs per PING round trip, {among}"), ours.per_ping(), LEAST_PER_PING),
        Bar::at_least(format!("Jain's index of fairness, {among}"), ours.fairness, LEAST_FAIRNESS),
    ]
}
