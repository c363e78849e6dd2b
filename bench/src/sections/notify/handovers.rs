//! How often a lock goes from one request of a connection to the next of the same connection.

use std::time::{Duration, Instant};

use super::crowd::Crowd;
use super::line::Line;
use crate::engine::Locks;
use crate::engine::ground::{Ground, ON_TWO_CPUS};
use crate::progress;
use crate::section::{Bar, Effort, Row, Section, Table};
use crate::statistics::{median, median_ratio};

/// Hand-overs in one write, where there are many.
const TOGETHER: usize = 50;
/// As of clients that are blocked: it is one round trip, and what the server does in it.
const LEAST_PER_PING: f64 = 0.5;
const LEAST_AHEAD_PER_PING: f64 = 1.0;
const LEAST_TOGETHER_PER_PING: f64 = 3.0;
/// What a hand-over may take with the longest line, in units of what it takes with the shortest.
const MOST_SLOWER: f64 = 1.25;

struct Plan {
    standing: [usize; 2],
    rounds: usize,
    span: Duration,
}

/// Per second, round by round.
#[derive(Default)]
struct Rates {
    pings: Vec<f64>,
    /// Each after the message of the one before.
    single: Vec<f64>,
    /// Each before that message.
    ahead: Vec<f64>,
    together: Vec<f64>,
}

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        standing: effort.choose([10, 99_990], [10, 9_990]),
        rounds: effort.choose(61, 5),
        span: Duration::from_millis(effort.choose(50, 20)),
    };
    let rates = plan.watch();
    Section {
        name: "notify_handovers",
        title: "Hand-overs of one lock between requests of one connection",
        method: method(&plan),
        table: table(&plan, &rates),
        bars: bars(&plan, &rates),
        plot: None,
    }
}

fn method(plan: &Plan) -> String {
    format!(
        "One RESP3 connection listens to its own channel, and very many of its requests stand in line for one lock. A \
         hand-over is a release and a request anew in one write, and the message that the next request is granted the lock. \
         *After the message*: each is sent when the message of the one before has been read. *One ahead*: the connection \
         knows whose turn it is, and sends each while the one before is on its way. *{TOGETHER} in one write*: the same, \
         with so many at a time. Beside them PING, round by round, on the same kind of connection. Medians of {} rounds of \
         {} ms, in turns with both lengths of the line, and of the rounds' ratios. {ON_TWO_CPUS}",
        plan.rounds,
        plan.span.as_millis()
    )
}

/// A server with so many requests in line, and what was measured of it.
struct Scene {
    ping: Line,
    crowd: Crowd,
    rates: Rates,
    // Last, so that the connections are closed before the server ends.
    _server: Ground,
}

impl Scene {
    fn fill(server: Ground, standing: usize) -> Self {
        let ping = Line::open(&server);
        let mut crowd = Crowd::open(&server, Locks::One, standing);
        crowd.join(standing + 1);
        crowd.take_over();
        Self { ping, crowd, rates: Rates::default(), _server: server }
    }

    fn watch(&mut self, span: Duration) {
        let Self { ping, crowd, rates, .. } = self;
        rates.pings.push(rate(span, 1, || ping.ping()));
        rates.single.push(rate(span, 1, || {
            crowd.prepare(1);
            crowd.send();
            crowd.finish(1);
        }));
        rates.ahead.push(ahead(crowd, span, 1));
        rates.together.push(ahead(crowd, span, TOGETHER));
    }
}

impl Plan {
    /// What is measured with the shortest line, and with the longest. In turns, so that a disturbance hits both.
    fn watch(&self) -> [Rates; 2] {
        let progress = progress::bar("notify_handovers", self.rounds);
        let [few, many] = self.standing;
        let server = Ground::for_connections(2).on_two_cpus();
        let other = server.another(2);
        let mut shortest = Scene::fill(server, few);
        let mut longest = Scene::fill(other, many);
        for _ in 0..self.rounds {
            shortest.watch(self.span);
            longest.watch(self.span);
            progress.inc(1);
        }
        [shortest.rates, longest.rates]
    }
}

/// Hand-overs in a second, so many in one write. Each write leaves while the one before is on its way.
fn ahead(crowd: &mut Crowd, span: Duration, times: usize) -> f64 {
    crowd.prepare(times);
    crowd.send();
    let rate = rate(span, times, || {
        crowd.prepare(times);
        crowd.send();
        crowd.finish(times);
    });
    crowd.finish(times);
    rate
}

/// How often something is done in a second that `step` does so many times.
fn rate(span: Duration, times: usize, mut step: impl FnMut()) -> f64 {
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < span {
        step();
        done += times;
    }
    done as f64 / start.elapsed().as_secs_f64()
}

impl Rates {
    /// What is measured, with the rates of it and the least per PING round trip.
    fn kinds(&self) -> [(&'static str, &[f64], f64); 3] {
        [
            ("after the message", &self.single, LEAST_PER_PING),
            ("one ahead", &self.ahead, LEAST_AHEAD_PER_PING),
            ("50 in one write", &self.together, LEAST_TOGETHER_PER_PING),
        ]
    }
}

fn table(plan: &Plan, rates: &[Rates; 2]) -> Table {
    let kinds = rates[0].kinds().map(|(what, ..)| what);
    let per_ping = kinds.map(|what| format!("{what}, per PING"));
    let headings = ["hand-overs per second"].into_iter().chain(kinds).chain(["PING round trips"]).map(str::to_owned);
    let row = |(standing, rates): (&usize, &Rates)| {
        let middle = |all: &[f64]| Some(median(all.iter().copied()));
        let kinds = rates.kinds();
        let per_second = kinds.map(|(_, of, _)| middle(of));
        let per_ping = kinds.map(|(_, of, _)| Some(median_ratio(of, &rates.pings)));
        let cells = [&per_second[..], &[middle(&rates.pings)], &per_ping].concat();
        Row { label: format!("LOCK.ACQUIRE NOTIFY, {standing} in line"), cells }
    };
    Table::new(headings.chain(per_ping), plan.standing.iter().zip(rates).map(row).collect())
}

fn bars(plan: &Plan, rates: &[Rates; 2]) -> Vec<Bar> {
    let per_ping = plan.standing.iter().zip(rates).flat_map(|(standing, rates)| {
        rates.kinds().map(|(what, of, least)| {
            let what = format!("NOTIFY: hand-overs per PING round trip, {what}, {standing} in line");
            Bar::at_least(what, median_ratio(of, &rates.pings), least)
        })
    });
    let [few, many] = plan.standing;
    let [shortest, longest] = rates;
    let slower = shortest.kinds().into_iter().zip(longest.kinds()).map(|((what, few_rates, _), (_, many_rates, _))| {
        let what = format!("NOTIFY: time of a hand-over, {what}, {many} in line against {few}");
        Bar::at_most(what, median_ratio(few_rates, many_rates), MOST_SLOWER)
    });
    per_ping.chain(slower).collect()
}
