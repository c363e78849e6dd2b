//! One round: some clients of one package contend for one lock.

use std::ops::Range;
use std::time::Duration;

use support::{Client, Server};

use super::attempts::Attempt;
use super::peers::Peer;
use super::worker::{Worker, now_ns};

/// How a round is run.
#[derive(Clone, Copy)]
pub struct Terms {
    pub clients: usize,
    /// How many may hold the lock at once.
    pub permits: usize,
    pub hold: Duration,
    pub length: Duration,
}

/// What happened in it.
pub struct Round {
    /// The package's.
    pub version: String,
    /// Of each client.
    pub attempts: Vec<Vec<Attempt>>,
    /// From when till when attempts were begun. Those under way at its end came to theirs.
    pub window: Range<u64>,
    /// What the server counted from the first attempt to the end of the last.
    pub spent: Counters,
}

#[derive(Clone, Copy)]
pub struct Counters {
    /// Commands, those inside scripts included.
    pub commands: u64,
    /// Reads from a connection that had something to read: one for each request, so also one for each round trip.
    pub reads: u64,
}

/// A process for each client, so that no interpreter's lock or event loop is shared.
pub fn run(server: &Server, peer: &Peer, terms: Terms) -> Round {
    let mut workers: Vec<Worker> = (0..terms.clients).map(|_| start(server, peer, terms)).collect();
    let versions: Vec<String> = workers.iter().map(Worker::wait_until_ready).collect();

    let mut observer = server.client();
    let before = Counters::of(&mut observer);
    let start = now_ns();
    let end = start + u64::try_from(terms.length.as_nanos()).expect("a short round");
    workers.iter_mut().for_each(|worker| worker.run_until(end));
    let attempts = workers.iter().map(Worker::attempts).collect();
    let after = Counters::of(&mut observer);

    workers.iter_mut().for_each(Worker::let_go);
    let version = versions.into_iter().next().expect("a client at least");
    Round { version, attempts, window: start..end, spent: after.since(before) }
}

fn start(server: &Server, peer: &Peer, terms: Terms) -> Worker {
    let mut command = peer.program.command();
    command.arg(server.port().to_string()).arg("contended").arg(terms.hold.as_micros().to_string());
    if terms.permits > 1 {
        command.arg(terms.permits.to_string());
    }
    Worker::start(command)
}

impl Counters {
    fn of(observer: &mut Client) -> Self {
        let stats = observer.run("INFO stats").string();
        let field = |name: &str| {
            let value = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim_end().parse().ok()).unwrap_or_else(|| panic!("no {name} in INFO stats"))
        };
        Self { commands: field("total_commands_processed"), reads: field("total_reads_processed") }
    }

    fn since(self, before: Self) -> Self {
        // One INFO is among them: the server counts a command when it has run, a read before.
        Self { commands: self.commands - before.commands - 1, reads: self.reads - before.reads - 1 }
    }
}
