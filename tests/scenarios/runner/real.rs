//! A real server as a stage.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use support::process::Process;
use support::replicas::{REPLICATION, in_step};
use support::scenario::{self, Change, Record, Scenario, Snapshot, Stage};
use support::{Aof, Client, Flavour, Reply, Server, Setup, module_beside, now_ms};

use super::pair::{self, Other};
use super::pool::Place;
pub use super::pool::end;

/// The settings whose defaults differ between servers.
const ALIKE: &str = "lazyfree-lazy-expire no\nlazyfree-lazy-user-del no\nlazyfree-lazy-user-flush no";

/// Plays a scenario on the server under test, unless it is for other servers.
#[track_caller]
pub fn play(scenario: &Scenario) {
    let mut stage = Real::start(scenario);
    if scenario.is_shown_by(stage.kind(), false) {
        scenario::play(&mut stage, scenario);
    }
    stage.end();
}

struct Real {
    server: Server,
    /// Where the server goes after the scenario, if others use it.
    place: Option<Place>,
    has_witness: bool,
    kind: Flavour,
    /// A connection of the stage itself. It has no name in the trace.
    observer: Client,
    clients: BTreeMap<String, Client>,
    other: Option<Other>,
    /// The replica, and the connection that reads its trace.
    replica: Option<(Server, Client)>,
    /// The process of the server, while it is stopped.
    paused: Option<Process>,
    /// The number of commands of the append-only file that have been read.
    read: usize,
}

impl Real {
    #[track_caller]
    fn start(scenario: &Scenario) -> Self {
        let (setup, config) = setup(scenario);
        let (server, place, other) = match (scenario.cluster, scenario.needs_own_server()) {
            (true, _) => {
                let (server, other) = pair::start(&setup);
                (server, None, Some(other))
            }
            (false, true) => (setup.start(), None, None),
            (false, false) => {
                let (server, place) = Place::take(config, &setup);
                (server, Some(place), None)
            }
        };
        let replica = scenario.replica.then(|| {
            let replica = match scenario.cluster {
                true => pair::replica_of(&server, &setup),
                false => replica_of(&server, setup),
            };
            let observer = observer(&replica, scenario.witness);
            (replica, observer)
        });
        let (kind, observer) = (server.flavour(), observer(&server, scenario.witness));
        let read = if scenario.has_stream() { server.aof().commands().len() } else { 0 };
        let clients = BTreeMap::new();
        Self {
            server,
            place,
            has_witness: scenario.witness,
            kind,
            observer,
            clients,
            other,
            replica,
            paused: None,
            read,
        }
    }

    /// Ends the scenario, which was played to its end.
    #[track_caller]
    fn end(self) {
        let Self { server, place, clients, observer, .. } = self;
        drop((clients, observer));
        if let Some(place) = place {
            place.give_back(server);
        }
    }

    fn client(&mut self, name: &str) -> &mut Client {
        self.clients.get_mut(name).unwrap_or_else(|| panic!("{name} has no connection"))
    }
}

/// Returns the setup of the server of a scenario, and the lines of its configuration.
fn setup(scenario: &Scenario) -> (Setup, String) {
    let mut lines = scenario.config.clone();
    if scenario.has_stream() {
        lines.insert(0, Aof::CONFIG.to_owned());
    }
    let lines = lines.join("\n");
    let mut setup = Setup::new();
    if scenario.replica || scenario.cluster || scenario.witness {
        setup = setup.config(REPLICATION);
    }
    if scenario.witness {
        let load = format!("loadmodule {}", module_beside("witness").display());
        setup = setup.without_module().config(ALIKE).config(&load);
    }
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
fn observer(server: &Server, has_witness: bool) -> Client {
    let mut observer = server.client();
    if has_witness {
        assert_eq!(observer.run("WITNESS.LISTEN"), "done");
    }
    observer
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
            _ => self.server.client(),
        };
        if self.has_witness {
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

    fn news(&mut self, record: Record) -> Vec<String> {
        let observer = match record {
            Record::Stream => {
                let new = self.server.aof().commands().split_off(self.read);
                self.read += new.len();
                return new;
            }
            Record::Trace => Some(&mut self.observer),
            Record::ReplicaTrace => self.replica.as_mut().map(|(_, observer)| observer),
        };
        let observer = observer.filter(|_| self.has_witness);
        observer.map(trace_of).unwrap_or_default()
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

    fn run_server(&mut self, runs: bool) {
        let process = self.paused.take().unwrap_or_else(|| Process::of(&self.server));
        if runs {
            process.resume();
        } else {
            process.stop();
            self.paused = Some(process);
        }
    }

    fn change(&mut self, change: &Change) {
        self.other.as_mut().expect("a cluster").change(change);
    }
}

fn trace_of(observer: &mut Client) -> Vec<String> {
    observer.run("WITNESS.TRACE").items().iter().map(Reply::string).collect()
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
