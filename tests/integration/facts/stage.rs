//! A real server with the witness in it.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use support::process::Process;
use support::replicas::{REPLICATION, in_step};
use support::scenario::{Change, Scenario};
use support::stage::Stage;
use support::{Aof, Client, Flavour, Reply, Server, Setup, module_beside, now_ms};

use super::pair::{self, Other};

/// What makes servers alike whose defaults differ.
const ALIKE: &str = "lazyfree-lazy-expire no\nlazyfree-lazy-user-del no\nlazyfree-lazy-user-flush no";

pub struct Real {
    server: Server,
    kind: Flavour,
    /// Reads the trace, and has no name there.
    observer: Client,
    clients: BTreeMap<String, Client>,
    other: Option<Other>,
    /// The replica, and who reads its trace.
    replica: Option<(Server, Client)>,
    /// It is stopped.
    stopped: Option<Process>,
    /// How much of the append-only file has been read.
    read: usize,
}

impl Real {
    #[track_caller]
    pub fn start(scenario: &Scenario) -> Self {
        let mut setup =
            Setup::new().config(REPLICATION).without_module().config(ALIKE).config(&scenario.config.join("\n"));
        setup = setup.config(&format!("loadmodule {}", module_beside("witness").display()));
        if scenario.has_stream() {
            setup = setup.config(Aof::CONFIG);
        }
        let (server, other) = match scenario.cluster {
            true => {
                let (server, other) = pair::start(&setup);
                (server, Some(other))
            }
            false => (setup.start(), None),
        };
        let replica = scenario.replica.then(|| {
            let replica = match scenario.cluster {
                true => pair::replica_of(&server, &setup),
                false => replica_of(&server, setup),
            };
            let observer = observer(&replica);
            (replica, observer)
        });
        let (kind, observer) = (server.flavour(), observer(&server));
        Self { server, kind, observer, clients: BTreeMap::new(), other, replica, stopped: None, read: 0 }
    }

    fn client(&mut self, name: &str) -> &mut Client {
        self.clients.get_mut(name).unwrap_or_else(|| panic!("{name} has no connection"))
    }
}

#[track_caller]
fn replica_of(server: &Server, setup: Setup) -> Server {
    let replica = setup.config(&format!("replicaof 127.0.0.1 {}", server.port())).start();
    in_step(&replica);
    replica
}

/// A connection that reads the trace. What happened before leaves none.
#[track_caller]
fn observer(server: &Server) -> Client {
    let mut observer = server.client();
    assert_eq!(observer.run("WITNESS.LISTEN"), "done");
    observer
}

fn trace(observer: &mut Client) -> Vec<String> {
    observer.run("WITNESS.TRACE").items().iter().map(Reply::string).collect()
}

impl Stage for Real {
    fn kind(&self) -> Flavour {
        self.kind
    }

    fn open(&mut self, client: &str) -> i64 {
        let mut connection = match (client, &self.replica) {
            ("r", Some((replica, _))) => replica.client(),
            _ => self.server.client(),
        };
        assert!(!connection.run(&format!("WITNESS.ENTER {client}")).is_error());
        let id = connection.id();
        self.clients.insert(client.to_owned(), connection);
        id
    }

    fn close(&mut self, client: &str) {
        self.clients.remove(client);
    }

    fn send(&mut self, client: &str, commands: &[Vec<String>]) {
        self.client(client).send_all(commands.iter().map(Vec::as_slice));
    }

    fn receive(&mut self, client: &str) -> String {
        self.client(client).receive().to_string()
    }

    fn trace(&mut self) -> Vec<String> {
        trace(&mut self.observer)
    }

    fn replica_trace(&mut self) -> Vec<String> {
        self.replica.as_mut().map(|(_, observer)| trace(observer)).unwrap_or_default()
    }

    fn stream(&mut self) -> Vec<String> {
        let new = Aof::of(self.server.directory()).commands().split_off(self.read);
        self.read += new.len();
        new
    }

    fn now_ms(&self) -> i64 {
        now_ms()
    }

    fn wait(&mut self, ms: u64) {
        sleep(Duration::from_millis(ms));
    }

    fn stall(&mut self, ms: u64) {
        let process = Process::of(&self.server);
        process.stop();
        sleep(Duration::from_millis(ms));
        process.resume();
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
