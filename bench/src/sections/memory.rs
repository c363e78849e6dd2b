//! The server's memory for a lock and for a waiter.

use std::time::Duration;

use support::{Client, Library, PATIENCE, Reply, Server, Setup, bytes_of, happens_within};

use crate::baseline;
use crate::many::{LONG, ServerMemory, request, run_all, subscriber, token};
use crate::place::allow_files;
use crate::report::{Bar, Effort, Row, Section, headings};

/// A difference below this is not one of a lock: no allocation is as small.
const LESS_THAN_AN_ALLOCATION: f64 = 1.0;
const WAITER_BYTES: f64 = 400.0;

struct Sizes {
    held: usize,
    waiters: usize,
    requests: [usize; 2],
    /// The time for which the memory must stay the same: for tables that the server rehashes, and for buffers of idle clients,
    /// which it frees after two seconds.
    tables: Duration,
    buffers: Duration,
}

struct Scene<'a> {
    sizes: &'a Sizes,
    server: Server,
    memory: ServerMemory,
}

impl<'a> Scene<'a> {
    fn start(peer: &Library, sizes: &'a Sizes) -> Self {
        let config = format!(
            "maxclients {}\nlock.max-waiters 1000000\nloadmodule {}",
            sizes.waiters + 100,
            peer.path().display()
        );
        let server = Setup::new().config(&config).start();
        let memory = ServerMemory::of(&server);
        Self { sizes, server, memory }
    }

    /// Bytes of each key that `command` sets, with a key and a token.
    fn held(mut self, command: &str, then_refused: bool) -> f64 {
        let before = self.memory.settled(self.sizes.tables);
        let client = &mut self.memory.0;
        for number in 0..self.sizes.held {
            let reply = client.run(&format!("{command} {} {} PX 600000", key(number), token(number)));
            assert!(reply == 1 || reply == "OK", "{command}: {reply:?}");
            if then_refused {
                let other = token(number + self.sizes.held);
                assert_eq!(
                    client.run(&format!("LOCK.ACQUIRE {} {other}", key(number))),
                    Reply::Nil,
                    "the lock is held"
                );
            }
        }
        (self.memory.settled(self.sizes.tables) - before) / self.sizes.held as f64
    }

    /// Bytes of each connected client that begins to wait by `command`. That number waits for the same key.
    fn blocked(mut self, command: &str, together: usize) -> f64 {
        let count = self.sizes.waiters;
        for number in 0..count / together {
            self.memory.0.ok(&format!("SET {} holder", key(number)));
        }
        let mut waiters: Vec<Client> = (0..count).map(|_| self.server.client()).collect();
        let before = self.memory.settled(self.sizes.buffers);
        for (number, waiter) in waiters.iter_mut().enumerate() {
            let line = format!("{command} {} {} BLOCK 0", key(number / together), token(number));
            waiter.send(&bytes_of(&line));
        }
        let all =
            happens_within(PATIENCE, || self.memory.0.info("clients", "blocked_clients") == Some(count.to_string()));
        assert!(all, "the server blocks all clients");
        (self.memory.settled(self.sizes.buffers) - before) / count as f64
    }

    /// Bytes of each request that waits for a message, all of one connection.
    fn notified(mut self, count: usize, has_own_lock: bool) -> f64 {
        let (mut client, _subscriber) = (self.server.client(), subscriber(&self.server));
        let lock = |number| key(if has_own_lock { number } else { 0 });
        // Twice, so that the server has rehashed its tables.
        for _ in 0..2 {
            run_all(&mut client, count, |number| vec![format!("SET {} holder PX {LONG}", lock(number))]);
        }
        // The first request, because the server begins its statistics of a command with it.
        client.run(&request("LOCK.ACQUIRE", &lock(0), "first"));
        client.run(&format!("LOCK.RELEASE {} first", lock(0)));
        let before = self.memory.settled(self.sizes.buffers);
        run_all(&mut client, count, |number| vec![request("LOCK.ACQUIRE", &lock(number), &token(number))]);
        (self.memory.settled(self.sizes.buffers) - before) / count as f64
    }
}

fn key(number: usize) -> String {
    format!("door:{number:07}")
}

pub fn measure(effort: Effort) -> Section {
    let (second, moment) = (Duration::from_secs(1), Duration::from_millis(200));
    let sizes = effort.choose(
        Sizes { held: 20_000, waiters: 10_000, requests: [1_000, 1_000_000], tables: second, buffers: 4 * second },
        Sizes { held: 500, waiters: 100, requests: [100, 10_000], tables: moment, buffers: moment },
    );
    allow_files(sizes.waiters + 500);
    let peer = baseline::peer();
    let scene = || Scene::start(&peer, &sizes);
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    let mut add = |label: &str, bytes: f64, comparison: f64, limit: Option<f64>| {
        let difference = bytes - comparison;
        rows.push(Row::new(label, [bytes, comparison, difference]));
        bars.extend(limit.map(|limit| Bar::at_most(format!("{label}, difference, bytes"), difference, limit)));
    };
    let set = scene().held("SET", false);
    add("a held lock", scene().held("LOCK.ACQUIRE", false), set, Some(LESS_THAN_AN_ALLOCATION));
    add("a held lock, after a refused request", scene().held("LOCK.ACQUIRE", true), set, None);
    for (label, together) in [("a blocked waiter, all for one lock", sizes.waiters), ("ten for each lock", 10)] {
        let [ours, empty] = ["LOCK.ACQUIRE", "PEER.ACQUIRE"].map(|command| scene().blocked(command, together));
        add(label, ours, empty, Some(WAITER_BYTES));
    }
    for count in sizes.requests {
        let words = token(0).len() as f64;
        let (one, each) = (scene().notified(count, false), scene().notified(count, true));
        add(&format!("NOTIFY, {count} requests for one lock"), one, words, Some(WAITER_BYTES));
        add(&format!("NOTIFY, {count} for a lock each"), each, words + key(0).len() as f64, Some(WAITER_BYTES));
    }
    Section {
        title: "Memory of a lock and of a waiter",
        method: format!(
            "`used_memory` of the server when it has settled, for each of {} locks, {} blocked waiters, and requests with NOTIFY. A \
             held lock is compared with `SET key token PX`; a blocked waiter with a client that a module blocks which keeps nothing \
             (bench/baseline/peer.c); a request with NOTIFY with the bytes of its token and of a key that no other request has.",
            sizes.held, sizes.waiters
        ),
        headings: headings(&["what", "bytes", "compared with", "difference"]),
        rows,
        bars,
    }
}
