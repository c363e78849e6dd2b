//! Where clients of this process and a server meet: on a CPU each, with as many connections as they need.

use std::future::Future;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use support::{Server, Setup};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use crate::connection::Connection;
use crate::protocols::scripts;

/// Files of the server or of this process that are no connections of clients.
const SPARE: usize = 200;

/// For the report.
pub const ON_TWO_CPUS: &str = "Server and clients have a CPU each, where there are two.";

pub struct Place {
    // The clients are dropped before the server.
    pub clients: LocalSet,
    runtime: Runtime,
    pub server: Server,
    /// Where this thread may run.
    anywhere: CpuSet,
}

impl Place {
    /// Starts a server for that number of connections.
    pub fn for_connections(connections: usize) -> Self {
        allow_files(connections + SPARE);
        let server = Setup::new().config(&format!("maxclients {}", connections + SPARE / 2)).start();
        scripts::load(&mut server.client());
        let anywhere = sched_getaffinity(None).expect("the CPUs of this thread");
        let place = Self { clients: LocalSet::new(), runtime: runtime(), server, anywhere };
        place.separate();
        place
    }

    /// Gives server and clients a CPU each. Otherwise the scheduler puts both on one, where a client that gets a reply runs
    /// before the server has sent the reply of the next.
    fn separate(&self) {
        let mut numbers = (0..CpuSet::MAX_CPU).filter(|&cpu| self.anywhere.is_set(cpu));
        let (Some(first), Some(last)) = (numbers.next(), numbers.next_back()) else { return };
        let id = self.server.client().info("server", "process_id").expect("the server has a process");
        for (process, cpu) in [(Pid::from_raw(id.parse().expect("a number")), first), (None, last)] {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(process, &only).expect("a thread that can be bound to a CPU");
        }
    }

    /// Waits for one task, while the tasks in `clients` pause.
    pub fn block_on<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime.block_on(task)
    }

    /// Runs the tasks in `clients` until this one ends.
    pub fn run_until<T>(&self, task: impl Future<Output = T>) -> T {
        self.clients.block_on(&self.runtime, task)
    }

    /// Returns the round trips of PING per second on one connection, while the tasks in `clients` pause.
    pub fn pings(&self, span: Duration) -> f64 {
        self.block_on(async {
            let mut connection = Connection::open(self.server.port()).await;
            let (start, mut count) = (Instant::now(), 0);
            while start.elapsed() < span {
                connection.call("PING").await;
                count += 1;
            }
            f64::from(count) / start.elapsed().as_secs_f64()
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.anywhere).expect("a thread that can run where it could before");
    }
}

pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Lets this process and the servers that it starts open that number of files.
pub fn allow_files(files: usize) {
    let files = u64::try_from(files).expect("a number of files");
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    assert!(maximum.is_none_or(|maximum| maximum >= files), "ulimit -Hn must be {files} at least");
    if current.is_some_and(|current| current < files) {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("a limit within what is allowed");
    }
}
