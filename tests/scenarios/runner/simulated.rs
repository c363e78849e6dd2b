//! A simulated server as a stage.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redis_lock::server::{ClientId, Effect, Node, ServerKind, Unit, WriteFence, slot_of};
use support::scenario::{self, Change, Record, Scenario, Snapshot, Stage, message_of};
use support::{Flavour, Program, Reply};

use super::served::Served;

/// The time that a reply may take, in milliseconds.
const PATIENCE_MS: u32 = 10_000;

/// The interval of the server's cron, which also expires keys, in milliseconds.
const CYCLE_MS: i64 = 100;

/// The number of keys that one run of the cron expires.
const CYCLE_KEYS: usize = 20;

/// The interval of the server's other checks, in milliseconds.
const CRON_MS: i64 = 1000;

/// Commands that change the state of the simulated server from outside. Commands that were sent before run first.
const CONTROLS: [&str; 5] = ["REPLICAOF", "CONFIG", "DEBUG", "WAIT", "INFO"];

/// Plays a scenario on every kind of simulated server to which it applies.
#[track_caller]
pub fn play(scenario: &Scenario) {
    for kind in ServerKind::ALL {
        let mut stage = Simulated::start(kind, scenario);
        if scenario.is_shown_by(stage.kind(), true) {
            let played = catch_unwind(AssertUnwindSafe(|| scenario::play(&mut stage, scenario)));
            if let Err(payload) = played {
                panic!("on a simulated {kind:?}:\n{}", message_of(&*payload));
            }
        }
    }
}

/// Ends all servers, which have no resources.
///
/// # Errors
/// None.
pub fn end() -> Result<(), String> {
    Ok(())
}

struct Simulated {
    kind: ServerKind,
    server: Served,
    replica: Option<Served>,
    clients: BTreeMap<String, ClientId>,
    /// Whether the server is stopped: it finds later what its clients do.
    is_stopped: bool,
    /// Whether the server's cron expires keys.
    expires: bool,
    /// The effects that were replicated since the last call of `stream`.
    received: Vec<Unit>,
}

impl Simulated {
    fn start(kind: ServerKind, scenario: &Scenario) -> Self {
        Node::forget_all();
        let start = || Served::start(kind, scenario.witness);
        let (server, replica) = (start(), scenario.replica.then(start));
        let (clients, received) = (BTreeMap::new(), Vec::new());
        let mut stage = Self { kind, server, replica, clients, is_stopped: false, expires: true, received };
        if scenario.cluster {
            stage.server.node.join_cluster();
        }
        if let Some(replica) = &mut stage.replica {
            replica.node.become_replica();
            replica.listen();
        }
        stage.server.listen();
        for line in &scenario.config {
            let words = format!("CONFIG SET {line}");
            stage.set(&words.split(' ').collect::<Vec<_>>());
        }
        stage
    }

    /// Carries out a command that changes the simulated server from outside. Returns its reply, or `None` for other commands.
    fn control(&mut self, node: Node, words: &[&str]) -> Option<Reply> {
        match *words {
            ["REPLICAOF", "NO", "ONE"] => node.become_master(),
            ["REPLICAOF", ..] => node.become_replica(),
            ["CONFIG", "SET", "min-replicas-to-write", count] => {
                node.set_fence((count != "0").then_some(WriteFence::NoReplicas));
            }
            ["DEBUG", "SET-ACTIVE-EXPIRE", on] => self.expires = on != "0",
            // The replica has received everything.
            ["WAIT", ..] => return Some(Reply::Int(1)),
            ["INFO", "lock"] => {
                let words = node
                    .info_words()
                    .into_iter()
                    .map(|(name, word)| format!("lock_{}:{}\r\n", name.to_string_lossy(), word.to_string_lossy()));
                let fields = node.info().into_iter().map(|(name, value)| format!("lock_{name}:{value}\r\n"));
                return Some(Reply::text(&fields.chain(words).collect::<String>()));
            }
            _ => return None,
        }
        Some(Reply::Status("OK".to_owned()))
    }

    /// Changes a setting, as before the start of the server.
    fn set(&mut self, words: &[&str]) {
        if self.control(self.server.node, words).is_none() {
            let reply = self.server.ask_as_observer(words);
            assert!(!reply.is_error(), "the simulated server has no such setting: {words:?}");
        }
    }

    /// Returns the server of a client, and the client's number there.
    fn of(&mut self, client: &str) -> (&mut Served, ClientId) {
        let number = *self.clients.get(client).unwrap_or_else(|| panic!("{client} has no connection"));
        (self.by_client(client), number)
    }

    fn by_client(&mut self, client: &str) -> &mut Served {
        match (client, &mut self.replica) {
            ("r", Some(replica)) => replica,
            _ => &mut self.server,
        }
    }

    /// Runs all event loops until no work is due, and replays the stream on the replica.
    fn settle(&mut self) {
        if self.is_stopped {
            return;
        }
        self.server.settle();
        let received = self.server.node.stream();
        if let Some(replica) = &mut self.replica {
            received.iter().for_each(|unit| replica.node.replay(unit));
            replica.settle();
        }
        self.received.extend(received);
    }
}

impl Stage for Simulated {
    fn is_simulated(&self) -> bool {
        true
    }

    fn kind(&self) -> Flavour {
        let (program, version) = match self.kind {
            ServerKind::Redis70 => (Program::Redis, (7, 0)),
            ServerKind::Redis72 => (Program::Redis, (7, 2)),
            ServerKind::Redis8 => (Program::Redis, (8, 0)),
            ServerKind::Valkey8 => (Program::Valkey, (8, 1)),
            ServerKind::Valkey9 => (Program::Valkey, (9, 1)),
        };
        Flavour { program, version }
    }

    fn open(&mut self, client: &str) -> i64 {
        let number = self.by_client(client).connect(client);
        self.clients.insert(client.to_owned(), number);
        number
    }

    fn close(&mut self, client: &str) {
        let (server, number) = self.of(client);
        server.node.hang_up(number);
        self.settle();
    }

    fn send(&mut self, client: &str, commands: &[Vec<Vec<u8>>]) {
        for command in commands {
            let words: Vec<&str> = command.iter().map_while(|word| std::str::from_utf8(word).ok()).collect();
            let node = self.by_client(client).node;
            if CONTROLS.contains(&words[0]) {
                self.settle();
            }
            let controlled = self.control(node, &words);
            let (server, number) = self.of(client);
            match controlled {
                Some(reply) => server.deliver(number, reply),
                None => server.send(number, command.clone()),
            }
        }
        self.settle();
    }

    fn receive(&mut self, client: &str) -> Reply {
        for _ in 0..PATIENCE_MS {
            let (server, number) = self.of(client);
            if let Some(reply) = server.next_reply(number) {
                return reply;
            }
            self.wait(1);
        }
        Reply::Other("no answer in time".to_owned())
    }

    fn is_blocked(&mut self, client: &str) -> bool {
        let (server, number) = self.of(client);
        server.node.has(number) && !server.has_reply(number)
    }

    fn snapshot(&mut self) -> Snapshot {
        vec![format!("{:?}", self.server.node.keyspace())]
    }

    fn news(&mut self, record: Record) -> Vec<String> {
        match record {
            Record::Trace => self.server.trace(),
            Record::ReplicaTrace => self.replica.as_mut().map(Served::trace).unwrap_or_default(),
            Record::Stream => {
                self.settle();
                std::mem::take(&mut self.received).iter().flat_map(as_lines).collect()
            }
        }
    }

    fn now_ms(&self) -> i64 {
        self.server.node.now_ms()
    }

    fn wait(&mut self, ms: u64) {
        for _ in 0..ms {
            Node::pass_us(1000);
            if self.is_stopped {
                continue;
            }
            let (node, now) = (self.server.node, self.now_ms());
            if now % CYCLE_MS == 0 {
                node.cron(CYCLE_MS);
                if self.expires {
                    node.expire_some(CYCLE_KEYS);
                }
            }
            if now % CRON_MS == 0 {
                node.notice();
                node.redirect();
            }
            self.settle();
        }
    }

    fn run_server(&mut self, runs: bool) {
        self.is_stopped = !runs;
        self.settle();
    }

    fn change(&mut self, change: &Change) {
        let node = self.server.node;
        match change {
            Change::Migrates { key } => node.begin_migration(slot_of(key.as_bytes())),
            Change::Leaves { key } => node.lose_slot(slot_of(key.as_bytes())),
            Change::Fails => node.set_cluster_down(true),
            Change::Recovers => node.set_cluster_down(false),
        }
        self.settle();
    }
}

/// Returns the lines of a unit. Several effects are replicated as a transaction.
fn as_lines(unit: &Unit) -> Vec<String> {
    let lines = unit.iter().map(Effect::line);
    if unit.len() < 2 {
        return lines.collect();
    }
    ["MULTI".to_owned()].into_iter().chain(lines).chain(["EXEC".to_owned()]).collect()
}
