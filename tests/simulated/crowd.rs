//! A simulated server for tests with many thousands of requests.

use redis_lock::core::steps;
use redis_lock::host::Locks;
use redis_lock::server::{ClientId, LoggedEvent, Node, Reply, ServerKind, Value};

/// A server with three clients. The asker sends most of the requests.
pub struct Stage {
    pub node: Node,
    pub alice: ClientId,
    pub asker: ClientId,
    pub listener: ClientId,
}

impl Stage {
    pub fn start() -> Self {
        Node::forget_all();
        let node = Node::new::<Locks>(ServerKind::Redis8);
        let [alice, asker, listener] = [(); 3].map(|()| node.connect());
        let stage = Self { node, alice, asker, listener };
        stage.run(alice, "CONFIG SET lock.max-waiters 1000000");
        stage.run(alice, "CONFIG SET lock.max-sessions 1000000");
        stage.run(listener, "SSUBSCRIBE news");
        stage
    }

    pub fn send(&self, client: ClientId, line: &str) {
        self.node.send(client, 0, line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect());
    }

    pub fn run(&self, client: ClientId, line: &str) {
        self.send(client, line);
        self.settle();
    }

    /// Sends a command and runs one iteration of the event loop. Returns the reply.
    pub fn ask(&self, client: ClientId, line: &str) -> Reply {
        self.node.event_log();
        self.send(client, line);
        self.node.turn();
        let replied = |note| match note {
            LoggedEvent::Replied { client: to, reply, .. } if to == client => Some(reply),
            _ => None,
        };
        self.node.event_log().into_iter().find_map(replied).expect("a reply")
    }

    /// Sends a command for each number, and runs the event loop until no work is due.
    pub fn each(&self, client: ClientId, count: usize, line: impl Fn(usize) -> String) {
        (0..count).for_each(|number| self.send(client, &line(number)));
        self.settle();
    }

    /// Runs the event loop until no work is due. Returns the largest number of entries that one iteration touched.
    pub fn settle(&self) -> usize {
        let mut longest = 0;
        loop {
            steps::take();
            self.node.turn();
            longest = longest.max(steps::take());
            self.node.event_log();
            self.node.stream();
            if self.node.next_wake().is_none_or(|wake| wake > self.node.now_ms()) {
                return longest;
            }
        }
    }

    /// Lets time pass in steps of 10 ms. Returns the largest number of entries that one iteration touched.
    pub fn pass(&self, ms: i64) -> usize {
        let steps = (0..ms / 10).map(|_| {
            Node::pass_us(10_000);
            self.settle()
        });
        steps.max().unwrap_or(0)
    }

    /// Returns the tokens that have a share of a lock.
    pub fn shares(&self, key: &str) -> Vec<String> {
        let keyspace = self.node.keyspace();
        match keyspace.get(0, key.as_bytes()).map(|entry| &entry.value) {
            Some(Value::SortedSet(members)) => {
                members.keys().map(|token| String::from_utf8_lossy(token).into_owned()).collect()
            }
            _ => Vec::new(),
        }
    }

    pub fn waiters(&self) -> u64 {
        self.count("waiters")
    }

    pub fn count(&self, name: &str) -> u64 {
        self.node.info().into_iter().find(|(field, _)| field == name).expect("a field").1
    }
}
