//! A simulated server with the module, and its clients.

use redis_lock::core::steps;
use redis_lock::host::{Locks, entry_count};
use redis_lock::server::{ClientId, Effect, LoggedEvent, Node, Reply, ServerKind, Value};

/// A server with three clients.
pub struct Stage {
    pub node: Node,
    pub alice: ClientId,
    /// Sends most of the requests.
    pub asker: ClientId,
    pub listener: ClientId,
}

impl Stage {
    /// Starts a server for very many requests, with a listener to the channel `news`.
    pub fn start() -> Self {
        Self::start_on(ServerKind::Redis8)
    }

    pub fn start_on(kind: ServerKind) -> Self {
        let stage = Self::on(kind);
        stage.run(stage.alice, "CONFIG SET lock.max-waiters 1000000");
        stage.run(stage.alice, "CONFIG SET lock.max-sessions 1000000");
        stage.run(stage.listener, "SSUBSCRIBE news");
        stage
    }

    pub fn on(kind: ServerKind) -> Self {
        Node::forget_all();
        let node = Node::new::<Locks>(kind);
        let [alice, asker, listener] = [(); 3].map(|()| node.connect());
        Self { node, alice, asker, listener }
    }

    /// Sends a command, which runs in the next iteration of the event loop.
    pub fn send(&self, client: ClientId, line: &str) {
        self.node.send(client, 0, line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect());
    }

    /// Sends a command and runs the event loop until no work is due. Returns the replies with their clients.
    pub fn run(&self, client: ClientId, line: &str) -> Vec<(ClientId, Reply)> {
        self.send(client, line);
        self.settled().0
    }

    /// Sends a command and runs one iteration of the event loop. Returns the reply.
    pub fn ask(&self, client: ClientId, line: &str) -> Reply {
        self.send(client, line);
        let mut replies = self.turn().into_iter();
        replies.find_map(|(to, reply)| (to == client).then_some(reply)).expect("a reply")
    }

    /// Sends a command for each number, and runs the event loop until no work is due.
    pub fn each(&self, client: ClientId, count: usize, line: impl Fn(usize) -> String) {
        (0..count).for_each(|number| self.send(client, &line(number)));
        self.settle();
    }

    /// Runs one iteration of the event loop. Returns the replies with their clients.
    pub fn turn(&self) -> Vec<(ClientId, Reply)> {
        self.node.turn();
        let replied = |note| match note {
            LoggedEvent::Replied { client, reply, .. } => Some((client, reply)),
            _ => None,
        };
        self.node.event_log().into_iter().filter_map(replied).collect()
    }

    /// Runs the event loop until no work is due. Returns the largest number of entries that one iteration touched.
    pub fn settle(&self) -> usize {
        self.settled().1
    }

    /// Does the same. Returns the replies with their clients, too.
    pub fn settled(&self) -> (Vec<(ClientId, Reply)>, usize) {
        let (mut replies, mut longest) = (Vec::new(), 0);
        loop {
            steps::take();
            replies.extend(self.turn());
            longest = longest.max(steps::take());
            if self.node.next_wake().is_none_or(|wake| wake > self.node.now_ms()) {
                return (replies, longest);
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

    /// Lets time pass, millisecond by millisecond. Returns the replies with their clients.
    pub fn wait(&self, ms: i64) -> Vec<(ClientId, Reply)> {
        let one = |_| {
            Node::pass_us(1000);
            self.settled().0
        };
        (0..ms).flat_map(one).collect()
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

    /// Returns a field of INFO.
    pub fn count(&self, name: &str) -> u64 {
        self.node.info().into_iter().find(|(field, _)| field == name).expect("a field").1
    }

    /// Returns the number of entries in the module's tables.
    pub fn left(&self) -> usize {
        self.node.with_module(entry_count)
    }

    /// Returns the replicated commands since the last call.
    pub fn stream(&self) -> Vec<String> {
        self.node.stream().iter().flatten().map(Effect::line).collect()
    }
}

/// Returns the replies in which one client receives an integer, and no other client anything.
pub fn received(client: ClientId, value: i64) -> Vec<(ClientId, Reply)> {
    vec![(client, Reply::Integer(value))]
}

/// Runs a test with two clients, on every kind of server.
pub fn on_every_kind(test: impl Fn(&Stage, ClientId, ClientId)) {
    for kind in ServerKind::ALL {
        let stage = Stage::on(kind);
        test(&stage, stage.alice, stage.asker);
    }
}
