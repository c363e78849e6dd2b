//! What a lock and a waiter cost in the server's memory.

use std::time::Duration;

use indicatif::ProgressBar;
use support::{Client, Library, PATIENCE, Reply, Server, Setup, bytes_of, happens_within};

use crate::baseline;
use crate::engine::ground::require_files;
use crate::progress;
use crate::section::{Bar, Effort, Row, Section, Table};
use crate::server_memory::ServerMemory;

/// A difference below this is not one of a lock: no allocation is as small.
const LESS_THAN_AN_ALLOCATION: f64 = 1.0;
const WAITER_BYTES: f64 = 400.0;

/// How much is held and waited for.
struct Sizes {
    held: usize,
    waiters: usize,
    /// Waiters on one key, where they are spread.
    together: usize,
    /// How long the server's memory must stay the same to count as settled: for tables that it rehashes, and for buffers
    /// of idle clients that it gives back, which it does after two seconds.
    tables: Duration,
    buffers: Duration,
}

impl Sizes {
    fn of(effort: Effort) -> Self {
        effort.choose(
            Self {
                held: 20_000,
                waiters: 10_000,
                together: 10,
                tables: Duration::from_secs(1),
                buffers: Duration::from_secs(4),
            },
            Self {
                held: 500,
                waiters: 100,
                together: 10,
                tables: Duration::from_millis(200),
                buffers: Duration::from_millis(200),
            },
        )
    }
}

/// A server that can have so many clients, and its memory.
struct Scene<'a> {
    sizes: &'a Sizes,
    server: Server,
    memory: ServerMemory,
}

impl<'a> Scene<'a> {
    fn start(peer: &Library, sizes: &'a Sizes) -> Self {
        let config = format!("maxclients {}\nloadmodule {}", sizes.waiters + 100, peer.path().display());
        let server = Setup::new().config(&config).start();
        let memory = ServerMemory::of(&server);
        Self { sizes, server, memory }
    }

    /// Bytes for each of many keys, taken by `command` with key and token and what follows.
    fn held(mut self, command: &str, rest: &str, asked_for: bool) -> f64 {
        let before = self.memory.settled(self.sizes.tables);
        for number in 0..self.sizes.held {
            let reply = self.memory.observer().run(&format!("{command} {} {} {rest}", key(number), token(number)));
            assert!(reply == 1 || reply == "OK", "{command}: {reply:?}");
            if asked_for {
                let other = token(number + self.sizes.held);
                let reply = self.memory.observer().run(&format!("LOCK.ACQUIRE {} {other}", key(number)));
                assert_eq!(reply, Reply::Nil, "the lock is held");
            }
        }
        (self.memory.settled(self.sizes.tables) - before) / self.sizes.held as f64
    }

    /// Bytes for each of many clients that are connected and then wait by `command`, so many for the same key.
    fn waiter(mut self, command: &str, together: usize) -> f64 {
        let count = self.sizes.waiters;
        for number in 0..count / together {
            self.memory.observer().ok(&format!("SET {} holder", key(number)));
        }
        let mut waiters: Vec<Client> = (0..count).map(|_| self.server.client()).collect();
        let before = self.memory.settled(self.sizes.buffers);
        for (number, waiter) in waiters.iter_mut().enumerate() {
            let line = format!("{command} {} {} BLOCK 0", key(number / together), token(number));
            waiter.send(&bytes_of(&line));
        }
        let blocked = |observer: &mut Client| observer.info("clients", "blocked_clients");
        let all = happens_within(PATIENCE, || blocked(self.memory.observer()) == Some(count.to_string()));
        assert!(all, "the server never blocked all clients: {:?}", blocked(self.memory.observer()));
        (self.memory.settled(self.sizes.buffers) - before) / count as f64
    }
}

fn key(number: usize) -> String {
    format!("door:{number:05}")
}

fn token(number: usize) -> String {
    format!("{number:032x}")
}

/// Bytes of the module's way, beside the server's own.
struct Pair {
    label: &'static str,
    server: f64,
    module: f64,
}

impl Pair {
    fn difference(&self) -> f64 {
        self.module - self.server
    }

    fn row(&self) -> Row {
        let cells = [self.module, self.server, self.difference()].map(Some).to_vec();
        Row { label: self.label.to_owned(), cells }
    }

    fn bar(&self, at_most: f64) -> Bar {
        Bar::at_most(format!("{}, bytes beyond the server's", self.label), self.difference(), at_most)
    }
}

fn held(peer: &Library, sizes: &Sizes, progress: &ProgressBar) -> [Pair; 2] {
    let scene = || {
        progress.inc(1);
        Scene::start(peer, sizes)
    };
    let server = scene().held("SET", "PX 600000", false);
    let taken = scene().held("LOCK.ACQUIRE", "PX 600000", false);
    let wanted = scene().held("LOCK.ACQUIRE", "PX 600000", true);
    [
        Pair { label: "a held lock", server, module: taken },
        Pair { label: "a held lock, after another was refused it", server, module: wanted },
    ]
}

fn waiting(peer: &Library, sizes: &Sizes, progress: &ProgressBar) -> [Pair; 2] {
    let pair = |label, together| {
        let bytes = |command| {
            progress.inc(1);
            Scene::start(peer, sizes).waiter(command, together)
        };
        Pair { label, server: bytes("PEER.ACQUIRE"), module: bytes("LOCK.ACQUIRE") }
    };
    [pair("a waiter, all for one lock", sizes.waiters), pair("a waiter, ten for each lock", sizes.together)]
}

pub fn measure(effort: Effort) -> Section {
    let sizes = Sizes::of(effort);
    require_files(sizes.waiters + 500);
    let peer = baseline::peer();
    let progress = progress::bar("memory", 7);
    let held = held(&peer, &sizes, &progress);
    let waiting = waiting(&peer, &sizes, &progress);
    let bars = [held[0].bar(LESS_THAN_AN_ALLOCATION)].into_iter();
    Section {
        name: "memory",
        title: "Memory of a lock and of a waiter",
        method: format!(
            "`used_memory` of the server, per lock of {} and per waiter of {}, once it has settled. Beside a held lock: \
             `SET key token PX`. Beside a waiter: a client blocked in the same way by a module that keeps nothing of its \
             own (bench/baseline/peer.c), with the same words.",
            sizes.held, sizes.waiters,
        ),
        table: Table::new(
            ["what", "bytes", "the server's own", "difference"],
            held.iter().chain(&waiting).map(Pair::row).collect(),
        ),
        bars: bars.chain(waiting.iter().map(|pair| pair.bar(WAITER_BYTES))).collect(),
        plot: None,
    }
}
