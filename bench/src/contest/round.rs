//! One round: clients of one package use the same locks for some time.

use std::fs;
use std::ops::Range;
use std::time::Duration;

use support::{Client, Server};
use tempfile::TempDir;

use super::Peer;
use super::attempts::Attempt;
use super::worker::{Worker, now_ns};

pub struct Terms {
    pub processes: usize,
    /// Clients of each process.
    pub clients: usize,
    pub permits: usize,
    pub hold_ms: usize,
    pub length: Duration,
    /// The lock of each acquisition. Each client begins at another place of this list.
    pub locks: Vec<usize>,
}

impl Terms {
    pub fn all_clients(&self) -> usize {
        self.processes * self.clients
    }
}

/// The result of a round.
pub struct Round {
    /// The package's.
    pub version: String,
    /// In the order of each client.
    pub attempts: Vec<Attempt>,
    /// The time in which attempts began. Those that had begun went on to their end.
    pub window: Range<u64>,
    /// What the server counted from the first attempt to the end of the last.
    pub counters: Counters,
}

#[derive(Clone, Copy)]
pub struct Counters {
    /// Commands, also those in scripts.
    pub commands: u64,
    /// Reads from a connection: one for each round trip.
    pub reads: u64,
}

pub fn run(server: &Server, peer: &Peer, terms: &Terms) -> Round {
    let folder = TempDir::with_prefix("redis-lock-bench-").expect("a temporary folder");
    let locks = folder.path().join("locks");
    let lines: Vec<String> = terms.locks.iter().map(usize::to_string).collect();
    fs::write(&locks, lines.join("\n")).expect("a writable folder");
    let start = |process: usize| {
        let mut command = peer.program.command();
        let numbers = [process * terms.clients, terms.clients, terms.hold_ms, terms.permits];
        command.arg(server.port().to_string()).arg(&locks).args(numbers.map(|number| number.to_string()));
        Worker::start(command)
    };
    let mut workers: Vec<Worker> = (0..terms.processes).map(start).collect();
    let versions: Vec<String> = workers.iter().map(Worker::wait_until_ready).collect();

    let mut observer = server.client();
    let before = Counters::of(&mut observer);
    let start = now_ns();
    let end = start + u64::try_from(terms.length.as_nanos()).expect("a short round");
    workers.iter_mut().for_each(|worker| worker.run_until(end));
    let attempts = workers.iter().flat_map(Worker::attempts).collect();
    let after = Counters::of(&mut observer);

    workers.iter_mut().for_each(Worker::end);
    let version = versions.into_iter().next().expect("a process at least");
    Round { version, attempts, window: start..end, counters: after.since(before) }
}

impl Counters {
    fn of(observer: &mut Client) -> Self {
        let mut field = |name: &str| {
            let value = observer.info("stats", name).and_then(|value| value.parse::<u64>().ok());
            value.unwrap_or_else(|| panic!("no {name} in INFO stats"))
        };
        Self { commands: field("total_commands_processed"), reads: field("total_reads_processed") }
    }

    fn since(self, before: Self) -> Self {
        // Two INFO are among them.
        Self { commands: self.commands - before.commands - 2, reads: self.reads - before.reads - 2 }
    }
}
