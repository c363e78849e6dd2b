//! For how long the server does nothing else when a connection closes that has very many requests.

use std::time::{Duration, Instant};

use support::{Client, PATIENCE};

use super::crowd::Crowd;
use super::line::Line;
use crate::engine::Locks;
use crate::engine::ground::{Ground, ON_TWO_CPUS};
use crate::progress;
use crate::section::{Bar, Effort, Row, Section, Table};
use crate::statistics::median;

/// The longest stall, as a share of all the work. In one go it would be 1, in equal stretches of 1000 of 100,000 requests
/// 0.01.
const MOST_AT_ONCE: f64 = 0.05;
/// How often somebody looks whether all requests are gone.
const LOOK: Duration = Duration::from_millis(10);

struct Plan {
    requests: usize,
    rounds: usize,
    /// How long the places are kept. It is longer than the requests take to leave, unless the machine is very busy.
    grace: Duration,
}

/// The round trips of PING over some time, in milliseconds.
struct Stretch {
    whole: f64,
    p50: f64,
    longest: f64,
}

/// What PING saw before, while the requests left, and while their places were forgotten.
type Phases = [Stretch; 3];

pub fn measure(effort: Effort) -> Section {
    let plan = Plan {
        requests: effort.choose(100_000, 10_000),
        rounds: effort.choose(3, 1),
        grace: Duration::from_millis(effort.choose(10_000, 1_000)),
    };
    let runs: Vec<Locks> = [Locks::One, Locks::Each].into_iter().flat_map(|locks| vec![locks; plan.rounds]).collect();
    let seen = progress::each("notify_closing", &runs, |&locks| plan.watch(locks));
    let seen: Vec<&[Phases]> = seen.chunks(plan.rounds).collect();
    Section {
        name: "notify_closing",
        title: "A connection closes that has very many requests",
        method: method(&plan),
        table: table(&seen),
        bars: bars(&seen),
        plot: None,
    }
}

fn method(plan: &Plan) -> String {
    format!(
        "A connection with {} requests that wait for messages closes, while another sends one PING after the other. *Whole* \
         is the time until no request is left, or half of that time over for what follows the grace time, when their places \
         are forgotten; *longest* is the longest round trip of PING meanwhile. Medians of {} runs. {ON_TWO_CPUS}",
        plan.requests, plan.rounds
    )
}

impl Plan {
    fn watch(&self, locks: Locks) -> Phases {
        let server = Ground::for_connections(3).on_two_cpus();
        let mut observer = server.client();
        observer.ok(&format!("CONFIG SET lock.rejoin-grace-ms {}", self.grace.as_millis()));
        let mut crowd = Crowd::open(&server, locks, self.requests);
        crowd.join(self.requests);
        let mut ping = Line::open(&server);
        let quiet = pings(&mut ping, |span| span > Duration::from_millis(100));

        let closed = Instant::now();
        drop(crowd);
        let leaving = pings(&mut ping, |_| nobody_waits(&mut observer));
        let took = closed.elapsed();
        std::thread::sleep(self.grace.saturating_sub(closed.elapsed()).saturating_sub(LOOK));
        let forgetting = pings(&mut ping, |span| span > took + took / 2 + LOOK);
        [quiet, leaving, forgetting]
    }
}

/// Sends one PING after the other until it is over, which is asked now and then.
fn pings(line: &mut Line, mut is_over: impl FnMut(Duration) -> bool) -> Stretch {
    let start = Instant::now();
    let (mut trips, mut look) = (Vec::new(), LOOK);
    loop {
        let sent = Instant::now();
        line.ping();
        trips.push(sent.elapsed().as_secs_f64() * 1000.0);
        let span = start.elapsed();
        assert!(span < PATIENCE, "it is never over");
        if span > look {
            look = span + LOOK;
            if is_over(span) {
                let longest = trips.iter().copied().fold(0.0, f64::max);
                return Stretch { whole: span.as_secs_f64() * 1000.0, p50: median(trips), longest };
            }
        }
    }
}

fn nobody_waits(observer: &mut Client) -> bool {
    observer.info("lock", "lock_waiters").as_deref() == Some("0")
}

const WHAT: [&str; 2] = ["for one lock", "for a lock each"];
const PHASES: [&str; 3] = ["beforehand", "requests leave", "places are forgotten"];

fn table(seen: &[&[Phases]]) -> Table {
    let rows = WHAT.iter().zip(seen).flat_map(|(what, runs)| {
        PHASES.iter().enumerate().map(move |(number, phase)| {
            let middle = |of: fn(&Stretch) -> f64| Some(median(runs.iter().map(|phases| of(&phases[number]))));
            let cells =
                vec![middle(|stretch| stretch.whole), middle(|stretch| stretch.longest), middle(|stretch| stretch.p50)];
            Row { label: format!("{what}: {phase}"), cells }
        })
    });
    Table::new(["what", "whole, ms", "longest PING, ms", "PING p50, ms"], rows.collect())
}

fn bars(seen: &[&[Phases]]) -> Vec<Bar> {
    let bar = |(what, runs): (&&str, &&[Phases])| {
        let share = median(runs.iter().map(|[_, leaving, _]| leaving.longest / leaving.whole));
        Bar::at_most(format!("NOTIFY: longest stall of a close, {what}, share of the whole"), share, MOST_AT_ONCE)
    };
    WHAT.iter().zip(seen).map(bar).collect()
}
