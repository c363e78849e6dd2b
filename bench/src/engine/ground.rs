//! Where the clients of the engine meet: a server with the module that takes them all.

use std::ops::Deref;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use support::{Reply, Server, Setup};

use super::{Action, Engine, Event, Locks, Orders, Workload};
use crate::protocols::{Lease, Ping, Protocol};

/// The lease that every protocol is given, in milliseconds. Nothing that is measured lasts as long, except where a lease
/// is meant to end.
pub const LEASE: Lease = 30_000;

/// Files that are open beside the connections, in the server or in the benchmark; and connections beside the engine's.
const SPARE: usize = 200;

/// What [`Ground::on_two_cpus`] means, for the report.
pub const ON_TWO_CPUS: &str = "Server and clients have a CPU each, where there are two.";

/// A server. Dropping it ends the server, and lets this thread run anywhere again.
pub struct Ground {
    server: Server,
    /// Where this thread may run.
    anywhere: CpuSet,
}

impl Ground {
    /// Of grounds there is one at a time, but for [`another`](Self::another).
    pub fn for_connections(connections: usize) -> Self {
        require_files(connections + SPARE);
        Self::start(connections)
    }

    /// None when this process may not open so many connections.
    pub fn if_allowed(connections: usize) -> Option<Self> {
        allow_files(connections + SPARE).then(|| Self::start(connections))
    }

    fn start(connections: usize) -> Self {
        let server = Setup::new().config(&format!("maxclients {}", connections + SPARE / 2)).start();
        let anywhere = sched_getaffinity(None).expect("the CPUs of this thread");
        Self { server, anywhere }
    }

    /// Another server on the CPUs of this one, to be measured in turns with it. It must be dropped first.
    pub fn another(&self, connections: usize) -> Self {
        let other = Self::for_connections(connections);
        let cpus = sched_getaffinity(self.process()).expect("the CPUs of a server");
        sched_setaffinity(other.process(), &cpus).expect("a server that can be bound to a CPU");
        other
    }

    fn process(&self) -> Option<Pid> {
        let process = self.server.client().info("server", "process_id").and_then(|id| Pid::from_raw(id.parse().ok()?));
        assert!(process.is_some(), "the server tells its process id");
        process
    }

    /// Gives server and engine a CPU each, as if each had a machine. Left to itself the scheduler puts both on one, where a
    /// client that is answered runs before the server has written the answer to the next.
    pub fn on_two_cpus(self) -> Self {
        if let Some((first, last)) = two_of(&self.anywhere) {
            sched_setaffinity(self.process(), &first).expect("a server that can be bound to a CPU");
            sched_setaffinity(None, &last).expect("a thread that can be bound to a CPU");
        }
        self
    }
}

impl Deref for Ground {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.anywhere).expect("a thread that can run where it could before");
    }
}

/// Two CPUs that lie as far apart as there are; None when there is one.
fn two_of(cpus: &CpuSet) -> Option<(CpuSet, CpuSet)> {
    let mut numbers = (0..CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu));
    let only = |cpu| {
        let mut set = CpuSet::new();
        set.set(cpu);
        set
    };
    Some((only(numbers.next()?), only(numbers.next_back()?)))
}

/// Lets this process open so many files, and the servers that it starts.
pub fn require_files(files: usize) {
    assert!(allow_files(files), "ulimit -Hn must be {files} at least");
}

/// False when it may not.
fn allow_files(files: usize) -> bool {
    let files = u64::try_from(files).expect("a number of files");
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if maximum.is_some_and(|maximum| maximum < files) {
        return false;
    }
    if current.is_some_and(|current| current < files) {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("a limit within what is allowed");
    }
    true
}

/// Clients of one protocol, and the scripts that it needs.
pub fn gather(server: &Server, protocol: &dyn Protocol, clients: usize, locks: Locks, lease: Lease) -> Engine {
    let mut client = server.client();
    for script in protocol.scripts() {
        let sha = client.call(&["SCRIPT", "LOAD", script.text]);
        assert_eq!(sha, Reply::text(&script.sha1()), "the name of a script");
    }
    Engine::new(server.port(), protocol, clients, locks, lease)
}

/// One connection that sends PING, by the same engine as everything else.
pub struct PingLine {
    engine: Engine,
    trips: RoundTrips,
}

struct RoundTrips {
    done: u64,
}

impl Workload for RoundTrips {
    fn on(&mut self, client: usize, event: Event, orders: &mut Orders) {
        self.done += 1;
        orders.give(client, if event == Event::Granted { Action::Release } else { Action::Acquire });
    }
}

impl PingLine {
    pub fn new(server: &Server) -> Self {
        let mut engine = gather(server, &Ping, 1, Locks::One, LEASE);
        engine.all(Action::Acquire);
        Self { engine, trips: RoundTrips { done: 0 } }
    }

    /// Round trips per second.
    pub fn rate(&mut self, span: Duration) -> f64 {
        self.trips.done = 0;
        let took = self.engine.run(&mut self.trips, span);
        self.trips.done as f64 / took.as_secs_f64()
    }
}
