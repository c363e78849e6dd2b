//! A simulated server with the module, and its clients.

use redis_lock::host::{Locks, entry_count};
use redis_lock::server::{Effect, LoggedEvent, Node, Reply, ServerKind};

/// One server with the module.
pub struct Stage(pub Node);

impl Stage {
    pub fn on(kind: ServerKind) -> Self {
        Node::forget_all();
        Self(Node::new::<Locks>(kind))
    }

    /// Sends a command, which runs in the next iteration of the event loop.
    pub fn send(&self, client: i64, line: &str) {
        self.0.send(client, 0, line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect());
    }

    /// Sends a command and runs the event loop until no work is due. Returns the replies with their clients.
    pub fn run(&self, client: i64, line: &str) -> Vec<(i64, Reply)> {
        self.send(client, line);
        self.turn()
    }

    /// Runs the event loop until no work is due.
    fn settle(&self) {
        self.0.turn();
        while self.0.next_wake().is_some_and(|wake| wake <= self.0.now_ms()) {
            self.0.turn();
        }
    }

    /// Runs the event loop until no work is due. Returns the replies with their clients.
    pub fn turn(&self) -> Vec<(i64, Reply)> {
        self.settle();
        let replied = |note| match note {
            LoggedEvent::Replied { client, reply, .. } => Some((client, reply)),
            _ => None,
        };
        self.0.event_log().into_iter().filter_map(replied).collect()
    }

    /// Lets time pass, millisecond by millisecond. Returns the replies with their clients.
    pub fn pass(&self, ms: i64) -> Vec<(i64, Reply)> {
        let one = |_| {
            Node::pass_us(1000);
            self.turn()
        };
        (0..ms).flat_map(one).collect()
    }

    /// Lets time pass, millisecond by millisecond. Returns the event log.
    pub fn notes(&self, ms: i64) -> Vec<LoggedEvent> {
        (0..ms).for_each(|_| {
            Node::pass_us(1000);
            self.settle();
        });
        self.0.event_log()
    }

    /// Returns the number of entries in the module's tables.
    pub fn left(&self) -> usize {
        self.0.with_module(entry_count)
    }

    /// Returns a field of INFO.
    pub fn info(&self, name: &str) -> u64 {
        let fields = self.0.info().into_iter();
        fields.into_iter().find_map(|(field, value)| (field == name).then_some(value)).expect("a field of INFO")
    }

    /// Returns the replicated commands since the last call.
    pub fn stream(&self) -> Vec<String> {
        self.0.stream().iter().flatten().map(Effect::line).collect()
    }
}

/// Returns the replies in which one client receives an integer, and no other client anything.
pub fn received(client: i64, value: i64) -> Vec<(i64, Reply)> {
    vec![(client, Reply::Integer(value))]
}

/// Runs a test with two clients, on every kind of server.
pub fn on_every_kind(test: impl Fn(Stage, i64, i64)) {
    for kind in ServerKind::ALL {
        let stage = Stage::on(kind);
        let (alice, bob) = (stage.0.connect(), stage.0.connect());
        test(stage, alice, bob);
    }
}
