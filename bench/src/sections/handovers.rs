//! How often a lock goes from one client to the next in a second, with up to 10,000 clients.

use std::time::Duration;

use crate::crowd::{Crowd, Return};
use crate::place::{ON_TWO_CPUS, Place};
use crate::protocols::{LOCK_BLOCK, LOCK_NOTIFY, PERMIT_BLOCK, PERMITS, Protocol, SET_NX_POLL, SET_NX_SCRIPT};
use crate::report::{Bar, Effort, Row, Section};
use crate::statistics::{median, median_ratio};

/// The number of clients with which the longest queue is compared, and with which fairness is measured.
const FEW: usize = 100;
const MIN_KEPT: f64 = 0.75;
const MIN_FAIRNESS: f64 = 0.999;

/// A way to wait, and the least number of its hand-overs in a round trip of PING. None for those of other libraries.
struct Way {
    protocol: Protocol,
    comes_back: Return,
    permits: usize,
    per_ping: Option<f64>,
}

const fn ours(protocol: Protocol, comes_back: Return, permits: usize, per_ping: f64) -> Way {
    Way { protocol, comes_back, permits, per_ping: Some(per_ping) }
}

const fn theirs(protocol: Protocol) -> Way {
    Way { protocol, comes_back: Return::AfterReply, permits: 1, per_ping: None }
}

const WAYS: [Way; 7] = [
    ours(Protocol::Plain(LOCK_BLOCK), Return::AfterReply, 1, 0.6),
    ours(Protocol::Plain(LOCK_BLOCK), Return::InOneWrite, 1, 0.6),
    ours(Protocol::Plain(LOCK_NOTIFY), Return::AfterReply, 1, 0.5),
    ours(Protocol::Plain(PERMIT_BLOCK), Return::AfterReply, PERMITS, 0.6),
    theirs(Protocol::Plain(SET_NX_POLL)),
    theirs(Protocol::Plain(SET_NX_SCRIPT)),
    theirs(Protocol::Redisson),
];

struct Plan {
    counts: &'static [usize],
    /// The longest time until every client has held the lock.
    warm_up: Duration,
    rounds: usize,
    span: Duration,
    turns: u64,
}

/// Hand-overs and round trips of PING per second in each round, and Jain's index with [`FEW`] clients.
struct Rates {
    clients: usize,
    hand_overs: Vec<f64>,
    pings: Vec<f64>,
    fairness: Option<f64>,
}

impl Rates {
    fn per_ping(&self) -> f64 {
        median_ratio(&self.hand_overs, &self.pings)
    }
}

impl Way {
    fn label(&self) -> String {
        let together = if self.comes_back == Return::InOneWrite { ", in one write" } else { "" };
        format!("{}{together}", self.protocol.name())
    }

    /// None where all clients can hold the lock together.
    fn measure(&self, clients: usize, plan: &Plan) -> Option<Rates> {
        if clients <= self.permits {
            return None;
        }
        let place = Place::for_connections(clients * self.protocol.connections() + 1);
        let crowd = Crowd::gather(&place, self.protocol, clients, self.comes_back, plan.warm_up);
        let mut rates = Rates { clients, hand_overs: Vec::new(), pings: Vec::new(), fairness: None };
        for _ in 0..plan.rounds {
            rates.pings.push(place.pings(plan.span));
            rates.hand_overs.push(crowd.rate(plan.span));
        }
        if clients == FEW {
            rates.fairness = Some(crowd.fairness(plan.turns, 10 * plan.warm_up));
        }
        Some(rates)
    }

    fn bars(&self, rates: &[Option<Rates>]) -> Vec<Bar> {
        let Some(at_least) = self.per_ping else { return Vec::new() };
        let rates: Vec<&Rates> = rates.iter().flatten().collect();
        let mut bars: Vec<Bar> = rates
            .iter()
            .map(|rates| {
                let what = format!("{}, hand-overs in a PING, {} clients", self.label(), rates.clients);
                Bar::at_least(what, rates.per_ping(), at_least)
            })
            .collect();
        let few = rates.iter().find(|rates| rates.clients == FEW);
        if let (Some(few), Some(many)) = (few, rates.last()) {
            let what = format!("{}, the same, {} clients, x that of {FEW}", self.label(), many.clients);
            bars.push(Bar::at_least(what, many.per_ping() / few.per_ping(), MIN_KEPT));
            let fairness = few.fairness.unwrap_or_default();
            bars.push(Bar::at_least(format!("{}, Jain's index, {FEW} clients", self.label()), fairness, MIN_FAIRNESS));
        }
        bars
    }
}

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        counts: effort.choose(&[2, 10, FEW, 1_000, 10_000], &[2, FEW, 1_000]),
        warm_up: Duration::from_millis(effort.choose(2_000, 200)),
        rounds: effort.choose(7, 2),
        span: Duration::from_millis(effort.choose(200, 30)),
        turns: effort.choose(30, 5),
    };
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for way in &WAYS {
        // Two connections of each of 10,000 clients are more files than most machines allow.
        let allowed = |&&clients: &&usize| clients * way.protocol.connections() <= 10_000;
        let measure = |clients: &usize| Some(clients).filter(allowed).and_then(|&clients| way.measure(clients, &plan));
        let rates: Vec<Option<Rates>> = plan.counts.iter().map(measure).collect();
        let rate = |rates: &Option<Rates>| rates.as_ref().map(|rates| median(rates.hand_overs.iter().copied()));
        let fairness = rates.iter().flatten().find_map(|rates| rates.fairness);
        rows.push(Row::new(way.label(), rates.iter().map(rate).chain([fairness])));
        bars.extend(way.bars(&rates));
    }
    let counts = plan.counts.iter().map(|clients| format!("{clients} clients"));
    let first = ["hand-overs per second".to_owned()];
    Section {
        title: "Hand-overs of one lock per second",
        method: format!(
            "Each client acquires the lock, releases it without delay, and asks again when it has the reply to its release, or in \
             the same write. A hand-over is a grant to another client than the one before. LIMIT is {PERMITS}. Medians of {} rounds of \
             {:?}, each after one of PING on one connection; the limits are for the ratio to PING of each round. Fairness is Jain's \
             index with {FEW} clients. The clients' timers have a resolution of 1 ms. {ON_TWO_CPUS}",
            plan.rounds, plan.span
        ),
        headings: first.into_iter().chain(counts).chain(["fairness".to_owned()]).collect(),
        rows,
        bars,
    }
}
