//! The servers of a load run.

mod clock;
mod slots;

use std::any::Any;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use support::process::Process;
use support::{Server, Setup};

use crate::scenario::{Scenario, Settings};
pub use clock::{Clock, time_of};
pub use slots::{SlotCluster, moves_slots};

/// What a write that was cut off can leave at the end of the append-only file.
const TORN: [&str; 3] = ["*3\r\n$3\r\nSET\r\n$4\r\ntorn", "*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n$2\r\ns0\r\n", "*"];

/// Without this, the thread of Valkey 8.1 that frees a flushed database ends the server now and then: kvstore.c:322,
/// `overhead_hashtable_lut == 0`.
const FLUSHED_AT_ONCE: &str = "lazyfree-lazy-user-flush no";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Killed,
    /// kill -9 in the middle of a write to the append-only file
    Torn,
    ShutDown(&'static str),
}

pub struct Servers {
    setup: Setup,
    bare_setup: Setup,
    server: Option<Server>,
    pub process: Process,
    pub replica: Option<Replica>,
    pub cluster: Option<SlotCluster>,
    pub clock: Option<Clock>,
}

pub struct Replica {
    pub server: Server,
    pub has_module: bool,
}

impl Servers {
    pub fn start(settings: &Settings, clock: Option<Clock>) -> Result<Self, String> {
        let [mut setup, mut bare_setup] = [true, false].map(|with_module| settings.setup(with_module));
        let clock = clock.filter(|_| settings.scenario == Scenario::Clock);
        if let Some(clock) = &clock {
            setup = setup.run_by(&clock.runner().each_ref().map(String::as_str));
        }
        let cluster = (settings.scenario == Scenario::Slots).then(|| SlotCluster::start(&setup));
        let server = if cluster.is_none() { Some(setup.try_start().map_err(|ended| ended.log)?) } else { None };
        let nodes = || cluster.iter().flat_map(|cluster| &cluster.nodes).chain(&server);
        for node in nodes().filter(|node| node.flavour().is("valkey 8")) {
            node.client().ok(&format!("CONFIG SET {FLUSHED_AT_ONCE}"));
            setup = setup.config(FLUSHED_AT_ONCE);
            bare_setup = bare_setup.config(FLUSHED_AT_ONCE);
        }
        let process = Process::of(nodes().next().expect("a server at least"));
        Ok(Self { setup, bare_setup, server, process, replica: None, cluster, clock })
    }

    /// The server that clients talk to, or the first one of a cluster.
    pub fn server(&self) -> &Server {
        let nodes = self.cluster.iter().flat_map(|cluster| &cluster.nodes);
        nodes.chain(&self.server).next().expect("a server that runs, or is about to start again")
    }

    pub fn port_of(&self, database: usize) -> u16 {
        self.cluster.as_ref().map_or_else(|| self.server().port(), |cluster| cluster.port_of(database))
    }

    /// The ends of the keys that are in the slot of each database; empty without a cluster.
    pub fn suffixes(&self) -> Vec<String> {
        self.cluster.iter().flat_map(|cluster| &cluster.slots).map(|slot| slot.tag.name.clone()).collect()
    }

    pub fn start_replica(&mut self, has_module: bool) -> Result<(), String> {
        let setup = if has_module { &self.setup } else { &self.bare_setup };
        let setup = setup.clone().config(&format!("replicaof 127.0.0.1 {}", self.server().port()));
        let server = setup.try_start().map_err(|ended| ended.log)?;
        self.replica = Some(Replica { server, has_module });
        Ok(())
    }

    pub fn end_replica(&mut self) -> Result<(), String> {
        end(self.replica.take()).map_err(|what| format!("the replica crashed: {what}"))
    }

    /// The replica, which has the module, is the master now, and the master its replica.
    pub fn swap(&mut self) {
        if let (Some(master), Some(replica)) = (&mut self.server, &mut self.replica) {
            std::mem::swap(master, &mut replica.server);
            self.process = Process::of(master);
        }
    }

    /// Ends the server and starts it again with what it has written.
    pub fn restart(&mut self, how: End, pause: impl FnOnce(), random: &mut fastrand::Rng) -> Result<(), String> {
        let mut server = self.server.take().expect("a server that runs");
        match how {
            End::Killed | End::Torn => Process::kill(&mut server),
            End::ShutDown(argument) => server.shut_down(argument),
        }
        if how == End::Torn {
            tear(server.directory(), TORN[random.usize(..TORN.len())]);
        }
        let setup = self.setup.clone().in_directory_of(&server);
        // The old log is read before the new one replaces it.
        end(server).map_err(|what| format!("it crashed before it ended: {what}"))?;
        pause();
        let server = setup.try_start().map_err(|ended| ended.log)?;
        self.process = Process::of(&server);
        self.server = Some(server);
        Ok(())
    }
}

pub fn end(servers: impl Sized) -> Result<(), String> {
    let text =
        |panic: Box<dyn Any + Send>| panic.downcast_ref::<String>().map_or("see its log", String::as_str).to_owned();
    catch_unwind(AssertUnwindSafe(|| drop(servers))).map_err(text)
}

/// Adds the beginning of a write to the append-only file that was written last, of those with names like
/// `appendonly.aof.12.incr.aof`.
fn tear(directory: &Path, text: &str) {
    let number_of = |path: &Path| path.to_str()?.strip_suffix(".incr.aof")?.rsplit('.').next()?.parse::<u64>().ok();
    let files = fs::read_dir(directory.join("appendonlydir")).expect("a folder with the append-only files");
    let paths = files.map(|file| file.expect("a folder entry").path());
    let last = paths.filter_map(|path| Some((number_of(&path)?, path))).max().expect("a file with increments").1;
    let file = OpenOptions::new().append(true).open(last);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a writable file");
}
