//! How often a contended lock goes from one client to the next, for every protocol and up to 10,000 clients.

use std::iter;
use std::time::Duration;

use indicatif::ProgressBar;

use crate::engine::Locks;
use crate::engine::contention::Return;
use crate::engine::crowd::Crowd;
use crate::engine::ground::{Ground, ON_TWO_CPUS, PingLine};
use crate::progress;
use crate::protocols::{CONTENDERS, Protocol};
use crate::section::{Bar, Effort, Plot, Row, Section, Table};
use crate::statistics::{median, median_ratio};

const LEAST_PER_PING: f64 = 0.6;
/// What the most clients must keep of the rate of [`FEW`].
const LEAST_KEPT: f64 = 0.75;
const FEW: usize = 10;

struct Plan {
    counts: &'static [usize],
    /// How long it takes at most until every client has had its turn and the measurement begins.
    warm_up: Duration,
    rounds: usize,
    span: Duration,
}

/// Hand-overs and, beside them, round trips of PING per second, round by round.
#[derive(Default)]
struct Rates {
    hand_overs: Vec<f64>,
    pings: Vec<f64>,
}

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        counts: effort.choose(&[2, 10, 100, 1_000, 10_000], &[2, 10, 1_000]),
        warm_up: Duration::from_millis(effort.choose(3_000, 300)),
        rounds: effort.choose(7, 2),
        span: Duration::from_millis(effort.choose(300, 30)),
    };
    let [native, peers @ ..] = CONTENDERS;
    let progress = progress::bar("handovers", plan.counts.len() * (2 + peers.len()));
    let ours = plan.over_counts(|clients| plan.with_pings(native, clients, Return::AtOnce, &progress));
    let one_write = plan.over_counts(|clients| plan.with_pings(native, clients, Return::InOneWrite, &progress));
    let peers = peers.map(|peer| Row {
        label: peer.name().to_owned(),
        cells: plan.over_counts(|clients| plan.alone(peer, clients, &progress)),
    });
    Section {
        name: "handovers",
        title: "Hand-overs of one contended lock per second",
        method: method(&plan),
        table: table(&plan, native.name(), &ours, &one_write, peers.into()),
        bars: bars(&plan, &ours),
        plot: Some(Plot::Lines {
            at: plan.counts.iter().map(|&clients| clients as f64).collect(),
            x: "clients".to_owned(),
            y: "hand-overs per second".to_owned(),
        }),
    }
}

impl Plan {
    fn over_counts<T>(&self, measure: impl Fn(usize) -> T) -> Vec<T> {
        self.counts.iter().map(|&clients| measure(clients)).collect()
    }

    /// This module's rates; between its rounds everybody waits, and the server is free for PING.
    fn with_pings(&self, protocol: &dyn Protocol, clients: usize, comes_back: Return, progress: &ProgressBar) -> Rates {
        let server = Ground::for_connections(clients + 1).on_two_cpus();
        let mut crowd = Crowd::gather(&server, protocol, clients, Locks::One, comes_back, self.warm_up);
        let mut ping = PingLine::new(&server);
        let mut rates = Rates::default();
        for _ in 0..self.rounds {
            rates.pings.push(ping.rate(self.span));
            rates.hand_overs.push(crowd.rate(self.span));
        }
        progress.inc(1);
        rates
    }

    /// A peer's rate; None when this process may not open as many connections as it needs.
    fn alone(&self, protocol: &dyn Protocol, clients: usize, progress: &ProgressBar) -> Option<f64> {
        progress.inc(1);
        let server = Ground::if_allowed(clients * protocol.lines())?.on_two_cpus();
        let rounds = u32::try_from(self.rounds).expect("a small number of rounds");
        let mut crowd = Crowd::gather(&server, protocol, clients, Locks::One, Return::AtOnce, self.warm_up);
        Some(crowd.rate(self.span * rounds))
    }
}

fn method(plan: &Plan) -> String {
    format!(
        "Each client acquires the lock, releases it at once and acquires it again. A client waits for the answer to its \
         release before it asks again; in the row \"in one write\" it sends its release and its next request together. \
         Counted is every grant to another client than the one before. The engine checks that no two clients hold the \
         lock. This module's figures are medians of {} rounds of {} ms, each after as long a round of PING on one \
         connection to the same server; what it is per PING is the median of the rounds' ratios. No figure: the process \
         may not open that many connections. {ON_TWO_CPUS}",
        plan.rounds,
        plan.span.as_millis()
    )
}

fn table(plan: &Plan, name: &str, ours: &[Rates], one_write: &[Rates], peers: Vec<Row>) -> Table {
    let row = |label: String, rates: &[Rates], of: fn(&Rates) -> &Vec<f64>| Row {
        label,
        cells: rates.iter().map(|rates| Some(median(of(rates).iter().copied()))).collect(),
    };
    let mut rows = vec![
        row(name.to_owned(), ours, |rates| &rates.hand_overs),
        row(format!("{name}, in one write"), one_write, |rates| &rates.hand_overs),
    ];
    rows.extend(peers);
    rows.push(row("PING, one connection".to_owned(), ours, |rates| &rates.pings));
    let counts = plan.counts.iter().map(|clients| format!("{clients} clients"));
    Table::new(iter::once("hand-overs per second".to_owned()).chain(counts), rows)
}

fn bars(plan: &Plan, ours: &[Rates]) -> Vec<Bar> {
    let per_ping = |rates: &Rates| median_ratio(&rates.hand_overs, &rates.pings);
    let mut bars: Vec<Bar> = plan
        .counts
        .iter()
        .zip(ours)
        .map(|(clients, rates)| {
            let what = format!("Hand-overs per PING round trip, {clients} clients");
            Bar::at_least(what, per_ping(rates), LEAST_PER_PING)
        })
        .collect();
    let few = plan.counts.iter().position(|&clients| clients == FEW).and_then(|place| ours.get(place));
    if let (Some(few), Some(many), Some(most)) = (few, ours.last(), plan.counts.last()) {
        let what = format!("Hand-overs per PING round trip, {most} clients against {FEW}");
        bars.push(Bar::at_least(what, per_ping(many) / per_ping(few), LEAST_KEPT));
    }
    bars
}
