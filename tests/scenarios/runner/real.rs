//! A real server as a stage.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use support::process::Process;
use support::replicas::{REPLICATION, in_step};
use support::scenario::{self, Change, Scenario, Snapshot, Stage};
use support::{Aof, Client, Flavour, Reply, Server, Setup, module_beside, now_ms};

use super::Module;
use super::pair::{self, Other};
use super::pool::Pooled;
pub use super::pool::end;

/// The settings whose defaults differ between servers.
const ALIKE: &str = "lazyfree-lazy-expire no\nlazyfree-lazy-user-del no\nlazyfree-lazy-user-flush no";

/// Plays a scenario on the server under test, unless it is for other servers.
#[track_caller]
pub fn play(module: Module, scenario: &Scenario) {
    let mut stage = Real::start(module, scenario);
    if scenario.is_shown_by(stage.kind()) {
        scenario::play(&mut stage, scenario);
    }
    stage.end();
}

/// The server of a scenario.
enum Node {
    Own(Box<Server>),
    Pooled(Box<Pooled>),
}

struct Real {
    node: Node,
    module: Module,
    kind: Flavour,
    /// A connection of the stage itself. It has no name in the trace.
    observer: Client,
    clients: BTreeMap<String, Client>,
    other: Option<Other>,
    /// The replica, and the connection that reads its trace.
    replica: Option<(Server, Client)>,
    /// The process of the server, while it is stopped.
    paused: Option<Process>,
    /// The process of the replica, while it is stopped.
    stopped: Option<Process>,
    /// The number of commands of the append-only file that have been read.
    read: usize,
}

impl Real {
    #[track_caller]
    fn start(module: Module, scenario: &Scenario) -> Self {
        let (setup, config) = setup(module, scenario);
        let (node, other) = match (scenario.cluster, scenario.needs_own_server() || module == Module::Witness) {
            (true, _) => {
                let (server, other) = pair::start(&setup);
                (Node::Own(Box::new(server)), Some(other))
            }
            (false, true) => (Node::Own(Box::new(setup.start())), None),
            (false, false) => (Node::Pooled(Box::new(Pooled::with(&config, &setup))), None),
        };
        let server = node.server();
        let replica = scenario.replica.then(|| {
            let replica = match scenario.cluster {
                true => pair::replica_of(server, &setup),
                false => replica_of(server, setup),
            };
            let observer = observer(&replica, module);
            (replica, observer)
        });
        let (kind, observer) = (server.flavour(), observer(server, module));
        let read = if scenario.has_stream() { server.aof().commands().len() } else { 0 };
        Self {
            node,
            module,
            kind,
            observer,
            clients: BTreeMap::new(),
            other,
            replica,
            paused: None,
            stopped: None,
            read,
        }
    }

    /// Ends the scenario, which was played to its end.
    #[track_caller]
    fn end(self) {
        let Self { node, clients, observer, .. } = self;
        drop((clients, observer));
        if let Node::Pooled(pooled) = node {
            pooled.give_back();
        }
    }

    fn client(&mut self, name: &str) -> &mut Client {
        self.clients.get_mut(name).unwrap_or_else(|| panic!("{name} has no connection"))
    }
}

impl Node {
    fn server(&self) -> &Server {
        match self {
            Self::Own(server) => server,
            Self::Pooled(pooled) => &pooled.server,
        }
    }
}

/// Returns the setup of the server of a scenario, and the lines of its configuration.
fn setup(module: Module, scenario: &Scenario) -> (Setup, String) {
    let mut lines = scenario.config.clone();
    if scenario.has_stream() {
        lines.insert(0, Aof::CONFIG.to_owned());
    }
    let lines = lines.join("\n");
    let setup = match module {
        Module::Locks if scenario.replica || scenario.cluster => Setup::new().config(REPLICATION),
        Module::Locks => Setup::new(),
        Module::Witness => {
            let witness = format!("loadmodule {}", module_beside("witness").display());
            Setup::new().config(REPLICATION).without_module().config(ALIKE).config(&witness)
        }
    };
    (setup.config(&lines), lines)
}

#[track_caller]
fn replica_of(server: &Server, setup: Setup) -> Server {
    let replica = setup.config(&format!("replicaof 127.0.0.1 {}", server.port())).start();
    in_step(&replica);
    replica
}

/// Returns a connection that reads the trace. Earlier events are not in it.
#[track_caller]
fn observer(server: &Server, module: Module) -> Client {
    let mut observer = server.client();
    if module == Module::Witness {
        assert_eq!(observer.run("WITNESS.LISTEN"), "done");
    }
    observer
}

fn trace(observer: &mut Client, module: Module) -> Vec<String> {
    match module {
        Module::Locks => Vec::new(),
        Module::Witness => observer.run("WITNESS.TRACE").items().iter().map(Reply::string).collect(),
    }
}

impl Stage for Real {
    fn kind(&self) -> Flavour {
        self.kind
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn open(&mut self, client: &str) -> i64 {
        let mut connection = match (client, &self.replica) {
            ("r", Some((replica, _))) => replica.client(),
            _ => self.node.server().client(),
        };
        if self.module == Module::Witness {
            assert!(!connection.run(&format!("WITNESS.ENTER {client}")).is_error());
        }
        let id = connection.id();
        self.clients.insert(client.to_owned(), connection);
        id
    }

    fn close(&mut self, client: &str) {
        self.clients.remove(client);
    }

    fn send(&mut self, client: &str, commands: &[Vec<Vec<u8>>]) {
        self.client(client).send_all(commands.iter().map(Vec::as_slice));
    }

    fn receive(&mut self, client: &str) -> Reply {
        self.client(client).receive()
    }

    fn is_blocked(&mut self, client: &str) -> bool {
        let id = self.client(client).id();
        let list = self.observer.run(&format!("CLIENT LIST ID {id}")).string();
        let flags = list.split(' ').find_map(|part| part.strip_prefix("flags="));
        flags.is_some_and(|flags| flags.contains('b'))
    }

    fn trace(&mut self) -> Vec<String> {
        trace(&mut self.observer, self.module)
    }

    fn replica_trace(&mut self) -> Vec<String> {
        let module = self.module;
        self.replica.as_mut().map(|(_, observer)| trace(observer, module)).unwrap_or_default()
    }

    fn stream(&mut self) -> Vec<String> {
        let new = self.node.server().aof().commands().split_off(self.read);
        self.read += new.len();
        new
    }

    fn snapshot(&mut self) -> Snapshot {
        let keyspace = self.observer.run("INFO keyspace").string();
        let databases = keyspace.lines().filter_map(|line| line.strip_prefix("db")?.split(':').next());
        let snapshot = databases.flat_map(|db| keys_of(&mut self.observer, db)).collect();
        self.observer.ok("SELECT 0");
        snapshot
    }

    fn now_ms(&self) -> i64 {
        now_ms()
    }

    fn wait(&mut self, ms: u64) {
        sleep(Duration::from_millis(ms));
    }

    fn stall(&mut self, ms: u64) {
        let process = Process::of(self.node.server());
        process.stop();
        sleep(Duration::from_millis(ms));
        process.resume();
    }

    fn run_server(&mut self, runs: bool) {
        let process = self.paused.take().unwrap_or_else(|| Process::of(self.node.server()));
        if runs {
            process.resume();
        } else {
            process.stop();
            self.paused = Some(process);
        }
    }

    fn run_replica(&mut self, runs: bool) {
        if let Some(process) = self.stopped.take() {
            process.resume();
        }
        if !runs {
            let process = Process::of(&self.replica.as_ref().expect("a replica").0);
            process.stop();
            self.stopped = Some(process);
        }
    }

    fn change(&mut self, change: &Change) {
        self.other.as_mut().expect("a cluster").change(change);
    }
}

/// Returns the keys of a database with their values and times, as lines.
fn keys_of(client: &mut Client, db: &str) -> Vec<String> {
    client.ok(&format!("SELECT {db}"));
    let mut keys: Vec<Vec<u8>> = client.run("KEYS *").items().iter().map(|key| key.bytes().to_vec()).collect();
    keys.sort_unstable();
    let line = |key: &Vec<u8>| {
        let [value, end] = ["DUMP", "PEXPIRETIME"].map(|command| client.call(&[command.as_bytes(), key]));
        format!("{db} {}: {value} until {end}", key.escape_ascii())
    };
    keys.iter().map(line).collect()
}
