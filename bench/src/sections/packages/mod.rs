//! The packages that people lock with today, as they are published, beside this module by raw commands of the same
//! language's client.

mod attempts;
mod figures;
mod peers;
mod round;
mod rust_worker;
mod worker;

use std::time::Duration;

use support::Setup;

use crate::progress;
use crate::section::{Effort, Plot, Section, Table};

use figures::{Figures, HEADINGS};
use peers::PEERS;
use round::{Round, Terms};
pub use rust_worker::{Options as WorkerOptions, run as run_worker};

pub fn measure(effort: Effort) -> Section {
    let rounds = effort.choose(3, 1);
    let terms = Terms {
        clients: effort.choose(10, 4),
        hold: Duration::from_millis(1),
        length: effort.choose(Duration::from_secs(3), Duration::from_millis(500)),
    };
    let figures: Vec<Figures> = contest(rounds, terms).iter().map(|rounds| Figures::of(rounds)).collect();
    let peers = || PEERS.iter().zip(&figures);
    Section {
        name: "packages",
        title: "The packages as they are published",
        method: method(rounds, terms),
        table: Table::new(HEADINGS, peers().map(|(peer, figures)| figures.row(peer.label)).collect()),
        bars: peers().filter(|(peer, _)| peer.is_module).flat_map(|(peer, figures)| figures.bars(peer.label)).collect(),
        plot: Some(Plot::Bars { column: 1, logarithmic: true }),
    }
}

/// The rounds of each peer. They take turns, so that a disturbance of the machine meets them all.
fn contest(rounds: usize, terms: Terms) -> Vec<Vec<Round>> {
    let server = Setup::new().start();
    let progress = progress::bar("packages", rounds * PEERS.len());
    let mut results: Vec<Vec<Round>> = PEERS.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (peer, results) in PEERS.iter().zip(&mut results) {
            progress.set_message(peer.label);
            results.push(round::run(&server, peer, terms));
            progress.inc(1);
        }
    }
    results
}

fn method(rounds: usize, Terms { clients, hold, length }: Terms) -> String {
    format!(
        "{clients} clients, each a process of its own, take one lock, hold it for {hold:?}, release it and take it again at \
         once, in {rounds} x {length:?}; packages with the defaults they are published with, as their documentation shows \
         them. *Release to grant* is the time from sending a release until a client that waited at that moment knows that it \
         holds the lock: a client that takes back the lock it has just released does not end their wait. *Gave up* counts \
         acquisitions that ended without the lock. Commands (those inside scripts included) and round trips (reads of the \
         server) are for taking and releasing the lock, with everything that was asked while waiting. Jain's index is 1 when \
         all clients had the lock equally often and 1/{clients} when one had it always."
    )
}
