//! The packages that people lock with today, as they are published, beside this module by raw commands of the same
//! language's client.

mod attempts;
mod figures;
mod peers;
mod python;
mod round;
mod rust_worker;
mod worker;

use std::time::Duration;

use support::Setup;

use crate::progress;
use crate::section::{Bar, Effort, Plot, Section, Table};

use figures::{Figures, HEADINGS};
use peers::{Kind, PEERS, PERMIT_PEERS, Peer};
use round::{Round, Terms};
pub use rust_worker::{Options as WorkerOptions, run as run_worker};

/// How the other bars of the Python package are measured.
const PYTHON: &str = "The ratios of redis-lock-client are medians of five turns in one process, each with redis-py's Lock \
     after it.";

/// For a lock that one holds at a time.
pub fn measure(effort: Effort) -> Section {
    let contest = Contest::of(effort, "packages", &PEERS, 1);
    let method = format!("{} {PYTHON}", contest.method());
    let mut section = Section { title: "The packages as they are published", method, ..contest.section() };
    let rates: Vec<f64> = section.table.rows.iter().filter_map(|row| *row.cells.first()?).collect();
    let rate = |kind: fn(&Kind) -> bool| PEERS.iter().position(|peer| kind(&peer.kind)).map_or(0.0, |at| rates[at]);
    let ratio = rate(|kind| matches!(kind, Kind::Package)) / rates[0];
    section.bars.push(Bar::at_least("redis-lock-client, 10 processes, ratio to redis-py Lock", ratio, 0.95));
    section.bars.extend(python::bars(&Setup::new().start(), effort));
    section
}

/// For the permits of a semaphore.
pub fn permits(effort: Effort) -> Section {
    let contest = Contest::of(effort, "share_packages", &PERMIT_PEERS, 3);
    let method = format!(
        "As for a lock above, but {} clients at a time may hold it; so a release may be followed by a grant that is due to \
         another release. {}",
        contest.terms.permits,
        contest.method()
    );
    Section { title: "The packages that have semaphores, as they are published", method, ..contest.section() }
}

struct Contest {
    name: &'static str,
    peers: &'static [Peer],
    rounds: usize,
    terms: Terms,
}

impl Contest {
    fn of(effort: Effort, name: &'static str, peers: &'static [Peer], permits: usize) -> Self {
        let terms = Terms {
            clients: effort.choose(10, 4),
            permits,
            hold: Duration::from_millis(1),
            length: effort.choose(Duration::from_secs(3), Duration::from_millis(500)),
        };
        Self { name, peers, rounds: effort.choose(3, 1), terms }
    }

    /// Without title and method.
    fn section(&self) -> Section {
        let figures: Vec<Figures> = self.run().iter().map(|rounds| Figures::of(rounds, self.terms)).collect();
        let peers = || self.peers.iter().zip(&figures);
        let bars = |(peer, figures): (&Peer, &Figures)| figures.bars(peer, self.terms);
        Section {
            name: self.name,
            title: "",
            method: String::new(),
            table: Table::new(HEADINGS, peers().map(|(peer, figures)| figures.row(peer.label)).collect()),
            bars: peers().flat_map(bars).collect(),
            plot: Some(Plot::Bars { column: 1, logarithmic: true }),
        }
    }

    /// The rounds of each peer. They take turns, so that a disturbance of the machine meets them all.
    fn run(&self) -> Vec<Vec<Round>> {
        let server = Setup::new().start();
        let progress = progress::bar(self.name, self.rounds * self.peers.len());
        let mut results: Vec<Vec<Round>> = self.peers.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.rounds {
            for (peer, results) in self.peers.iter().zip(&mut results) {
                progress.set_message(peer.label);
                results.push(round::run(&server, peer, self.terms));
                progress.inc(1);
            }
        }
        results
    }

    fn method(&self) -> String {
        let Self { rounds, terms: Terms { clients, hold, length, .. }, .. } = self;
        format!(
            "{clients} clients, each a process of its own, take one lock, hold it for {hold:?}, release it and take it again at \
             once, in {rounds} x {length:?}; packages with the defaults they are published with, as their documentation shows \
             them. *Release to grant* is the time from sending a release until a client that waited at that moment knows that it \
             holds the lock: a client that takes back the lock it has just released does not end their wait. *Gave up* counts \
             acquisitions that ended without the lock. Commands (with those inside scripts, and those by which the module sends \
             messages) and round trips (reads of the server) are for taking and releasing the lock, with everything that was \
             asked while waiting. Jain's index is 1 when \
             all clients had the lock equally often and 1/{clients} when one had it always."
        )
    }
}
