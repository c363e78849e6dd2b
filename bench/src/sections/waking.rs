//! How long it takes from a release to the next client's grant, for every protocol, and how fair it is.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use support::Server;

use crate::engine::contention::{Contention, Return};
use crate::engine::ground::{Ground, LEASE, ON_TWO_CPUS, gather};
use crate::engine::{Action, Engine, Event, Locks, Orders, Workload};
use crate::progress;
use crate::protocols::{CONTENDERS, Notified, Ping, Protocol};
use crate::section::{Bar, Effort, Plot, Row, Section, Table};
use crate::statistics::{jain, median, median_if_any, quantile_us, record, spans};

const CLIENTS: usize = 100;
/// Turns for everybody to see how fair it is: enough that one more or less does not count.
const FAIR_TURNS: u64 = 30;

const MOST_PINGS: f64 = 1.5;
const LEAST_FAIRNESS: f64 = 0.999;

struct Plan {
    /// How long each holder holds the lock, and how long a client rests before each PING.
    hold: Duration,
    rounds: usize,
    /// Grants in each round, and how long to wait for them at most.
    grants: u64,
    at_most: Duration,
    /// How long everybody contends at most to see how fair it is.
    fair_at_most: Duration,
}

/// What was seen of one protocol.
struct Seen {
    waking: Histogram<u64>,
    /// The median and the 99th percentile of each round, in median PING round trips at its side.
    p50_in_pings: Vec<f64>,
    p99_in_pings: Vec<f64>,
    pings: Histogram<u64>,
    fairness: f64,
}

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        hold: Duration::from_micros(effort.choose(1_000, 100)),
        rounds: effort.choose(10, 2),
        grants: effort.choose(300, 50),
        at_most: Duration::from_millis(effort.choose(2_000, 200)),
        fair_at_most: Duration::from_millis(effort.choose(15_000, 1_500)),
    };
    let protocols = protocols();
    let progress = progress::bar("waking", protocols.len() * (plan.rounds + 1));
    let watch = |protocol: &&dyn Protocol| {
        let fairness = plan.fairness(*protocol);
        progress.inc(1);
        Seen { fairness, ..plan.watch(*protocol, &progress) }
    };
    let seen: Vec<Seen> = protocols.iter().map(watch).collect();
    Section {
        name: "waking",
        title: "From a release to the next grant, 100 clients",
        method: method(&plan),
        table: table(&protocols, &seen),
        bars: seen.first().map(bars).unwrap_or_default(),
        plot: Some(Plot::Bars { column: 0, logarithmic: true }),
    }
}

/// This module's come first: its client that is blocked, and its client that waits for a message.
fn protocols() -> Vec<&'static dyn Protocol> {
    let [native, peers @ ..] = CONTENDERS;
    [native, &Notified].into_iter().chain(peers).collect()
}

fn method(plan: &Plan) -> String {
    format!(
        "Each of {CLIENTS} clients holds the lock for {} µs; the time runs from the sending of its release until another \
         client has read its grant. Whoever has released asks again only when the next one holds the lock, so that each \
         grant goes to a client that has waited. PING: one connection to the same server that rests as long between its \
         requests, in turns with the lock ({} rounds of {} grants); the medians of the rounds are compared. Fairness is \
         Jain's index of how often each client got the lock, with clients that ask again at once; strict turns make it 1, \
         one client that gets everything 1/{CLIENTS}. With NOTIFY each client listens on a second connection, and what it reads \
         there is its grant. {ON_TWO_CPUS}",
        plan.hold.as_micros(),
        plan.rounds,
        plan.grants
    )
}

impl Plan {
    fn watch(&self, protocol: &dyn Protocol, progress: &ProgressBar) -> Seen {
        let server = Ground::for_connections(CLIENTS * protocol.lines() + 1).on_two_cpus();
        let mut engine = gather(&server, protocol, CLIENTS, Locks::One, LEASE);
        let mut contention = Contention::new(CLIENTS, self.hold, Return::BehindTheNext);
        let mut pace = Pace::new(&server, self.hold);
        let mut seen =
            Seen { waking: spans(), p50_in_pings: Vec::new(), p99_in_pings: Vec::new(), pings: spans(), fairness: 0.0 };
        engine.all(Action::Acquire);
        for _ in 0..self.rounds {
            let ping = pace.run(self.grants).clone();
            contention.count_to(self.grants);
            engine.run(&mut contention, self.at_most);
            if let (Some(p50), Some(p99), Some(trip)) =
                (quantile_us(&contention.waking, 0.5), quantile_us(&contention.waking, 0.99), quantile_us(&ping, 0.5))
            {
                seen.p50_in_pings.push(p50 / trip);
                seen.p99_in_pings.push(p99 / trip);
            }
            seen.waking.add(&contention.waking).expect("histograms alike");
            seen.pings.add(&ping).expect("histograms alike");
            progress.inc(1);
        }
        seen
    }

    /// Among clients of which none waits longer than it must before it asks again.
    fn fairness(&self, protocol: &dyn Protocol) -> f64 {
        let clients = u64::try_from(CLIENTS).expect("a small number");
        let server = Ground::for_connections(CLIENTS * protocol.lines()).on_two_cpus();
        let mut engine = gather(&server, protocol, CLIENTS, Locks::One, LEASE);
        let mut contention = Contention::new(CLIENTS, self.hold, Return::AtOnce);
        engine.all(Action::Acquire);
        contention.count_to(clients);
        engine.run(&mut contention, self.at_most);
        contention.count_to(FAIR_TURNS * clients);
        engine.run(&mut contention, self.fair_at_most);
        jain(&contention.taken)
    }
}

/// One connection that sends PING at the pace of the holders.
struct Pace {
    engine: Engine,
    trips: RestedTrips,
}

struct RestedTrips {
    rest: Duration,
    seen: Histogram<u64>,
    enough: u64,
    /// A client's requests are acquire and release in turn.
    next: Action,
    sent_at: Instant,
}

impl Pace {
    fn new(server: &Server, rest: Duration) -> Self {
        let mut engine = gather(server, &Ping, 1, Locks::One, LEASE);
        engine.all(Action::Acquire);
        let trips = RestedTrips { rest, seen: spans(), enough: 0, next: Action::Release, sent_at: Instant::now() };
        Self { engine, trips }
    }

    fn run(&mut self, trips: u64) -> &Histogram<u64> {
        self.trips.seen.clear();
        self.trips.enough = trips;
        self.engine.run(&mut self.trips, Duration::MAX);
        &self.trips.seen
    }
}

impl Workload for RestedTrips {
    fn on(&mut self, client: usize, event: Event, orders: &mut Orders) {
        match event {
            Event::Rested => {
                self.sent_at = Instant::now();
                orders.give(client, self.next);
            }
            Event::Granted | Event::Released | Event::Cycled => {
                record(&mut self.seen, self.sent_at.elapsed());
                self.next = if event == Event::Granted { Action::Release } else { Action::Acquire };
                orders.give(client, Action::Rest(self.rest));
            }
        }
    }

    fn is_done(&self) -> bool {
        self.seen.len() >= self.enough
    }
}

fn table(protocols: &[&dyn Protocol], seen: &[Seen]) -> Table {
    let headings = ["protocol", "p50, µs", "p99, µs", "p50, PING round trips", "p99, PING round trips", "fairness"];
    let row = |(protocol, seen): (&&dyn Protocol, &Seen)| Row {
        label: protocol.name().to_owned(),
        cells: vec![
            quantile_us(&seen.waking, 0.5),
            quantile_us(&seen.waking, 0.99),
            median_if_any(&seen.p50_in_pings),
            median_if_any(&seen.p99_in_pings),
            Some(seen.fairness),
        ],
    };
    let mut rows: Vec<Row> = protocols.iter().zip(seen).map(row).collect();
    if let Some(Seen { pings, .. }) = seen.first() {
        let cells = vec![quantile_us(pings, 0.5), quantile_us(pings, 0.99), Some(1.0), None, None];
        rows.push(Row { label: "PING".to_owned(), cells });
    }
    Table::new(headings, rows)
}

fn bars(ours: &Seen) -> Vec<Bar> {
    vec![
        Bar::at_most(
            "Release to grant, p50, in PING round trips",
            median(ours.p50_in_pings.iter().copied()),
            MOST_PINGS,
        ),
        Bar::at_least("Jain's index of fairness", ours.fairness, LEAST_FAIRNESS),
    ]
}
