//! The servers of a run.

use std::any::Any;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use support::process::Process;
use support::{Server, Setup};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::ground::{Ground, Kind};

/// What a write that was cut off may leave at the end of the append-only file.
const TORN: [&str; 3] = ["*3\r\n$3\r\nSET\r\n$4\r\ntorn", "*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n$2\r\ns0\r\n", "*"];

/// Without this, the thread of Valkey 8.1 that frees a flushed database ends the server now and then: kvstore.c:322,
/// `overhead_hashtable_lut == 0`.
const FLUSHED_AT_ONCE: &str = "lazyfree-lazy-user-flush no";

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// kill -9
    Killed,
    /// kill -9, and the last write to the append-only file was cut off
    Torn,
    /// SHUTDOWN with this argument
    ShutDown(&'static str),
}

pub struct Scene {
    setup: Setup,
    bare_setup: Setup,
    server: Option<Server>,
    process: Process,
    replica: Option<Replica>,
    cluster: Option<Cluster>,
    clock: Option<Clock>,
}

/// A second server, which follows the one that clients talk to.
pub struct Replica {
    pub server: Server,
    pub has_module: bool,
}

impl Scene {
    /// Starts what the ground asks for; Err with the log of a server that ends at once.
    pub fn start(ground: &Ground, clock: Option<Clock>) -> Result<Self, String> {
        let (mut setup, mut bare_setup) = (ground.setup(), ground.bare_setup());
        let clock = clock.filter(|_| ground.kind() == Kind::Clock);
        if let Some(clock) = &clock {
            let runner = clock.runner();
            setup = setup.run_by(&runner.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let cluster = (ground.kind() == Kind::Slots).then(|| Cluster::start(&setup)).transpose()?;
        let server = if cluster.is_none() { Some(setup.try_start().map_err(|ended| ended.log)?) } else { None };
        let nodes = cluster.iter().flat_map(Cluster::nodes).chain(&server);
        for node in nodes.filter(|node| node.flavour().is("valkey 8")) {
            node.client().ok(&format!("CONFIG SET {FLUSHED_AT_ONCE}"));
            setup = setup.config(FLUSHED_AT_ONCE);
            bare_setup = bare_setup.config(FLUSHED_AT_ONCE);
        }
        let first = cluster.iter().flat_map(Cluster::nodes).chain(&server).next();
        let process = Process::of(first.expect("a server at least"));
        Ok(Self { setup, bare_setup, server, process, replica: None, cluster, clock })
    }

    /// The one that clients talk to, or the first of a cluster.
    pub fn server(&self) -> &Server {
        let first = self.cluster.iter().flat_map(Cluster::nodes).chain(&self.server).next();
        first.expect("a server that was started, or is started again")
    }

    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The server's clock, where it has one of its own.
    pub fn clock_mut(&mut self) -> Option<&mut Clock> {
        self.clock.as_mut()
    }

    pub fn cluster_mut(&mut self) -> Option<&mut Cluster> {
        self.cluster.as_mut()
    }

    /// Where the server is that has a database, or what is in its place in a cluster.
    pub fn port_of(&self, database: usize) -> u16 {
        self.cluster.as_ref().map_or_else(|| self.server().port(), |cluster| cluster.port_of(database))
    }

    /// What the names of keys end in that lie in a database's slot; empty without a cluster.
    pub fn suffixes(&self) -> Vec<String> {
        self.cluster.iter().flat_map(Cluster::realms).map(|realm| realm.tag.clone()).collect()
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    pub fn replica(&self) -> Option<&Replica> {
        self.replica.as_ref()
    }

    /// Starts a replica, which need not have the module; Err with its log when it ends at once.
    pub fn start_replica(&mut self, has_module: bool) -> Result<(), String> {
        let setup = if has_module { &self.setup } else { &self.bare_setup };
        let setup = setup.clone().config(&format!("replicaof 127.0.0.1 {}", self.server().port()));
        let server = setup.try_start().map_err(|ended| ended.log)?;
        self.replica = Some(Replica { server, has_module });
        Ok(())
    }

    /// Ends the replica, if there is one; Err if it crashed.
    pub fn end_replica(&mut self) -> Result<(), String> {
        let replica = self.replica.take();
        catch_unwind(AssertUnwindSafe(|| drop(replica)))
            .map_err(|panic| format!("the replica crashed: {}", text_of(panic.as_ref())))
    }

    /// The replica, which has the module, is the master now, and the master its replica.
    pub fn swap(&mut self) {
        if let (Some(master), Some(replica)) = (&mut self.server, &mut self.replica) {
            std::mem::swap(master, &mut replica.server);
            self.process = Process::of(master);
        }
    }

    /// Ends the server and starts it again with what it has written; Err with what is wrong with it.
    pub fn start_again(&mut self, end: End, pause: impl FnOnce(), random: &mut fastrand::Rng) -> Result<(), String> {
        let mut server = self.server.take().expect("a server that was started, or is started again");
        match end {
            End::Killed | End::Torn => Process::kill(&mut server),
            End::ShutDown(how) => server.shut_down(how),
        }
        if end == End::Torn {
            tear(server.directory(), TORN[random.usize(..TORN.len())]);
        }
        let setup = self.setup.clone().in_directory_of(&server);
        // The old log is read before the new one takes its place.
        catch_unwind(AssertUnwindSafe(|| drop(server)))
            .map_err(|panic| format!("it crashed before it ended: {}", text_of(panic.as_ref())))?;
        pause();
        let server = setup.try_start().map_err(|ended| ended.log)?;
        self.process = Process::of(&server);
        self.server = Some(server);
        Ok(())
    }
}

/// Adds the beginning of a write that never ended.
fn tear(directory: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(last_file(directory)).expect("an append-only file");
    file.write_all(text.as_bytes()).expect("a writable file");
}

/// The append-only file that was written last.
fn last_file(directory: &Path) -> PathBuf {
    let files = fs::read_dir(directory.join("appendonlydir")).expect("a folder with the append-only files");
    let paths = files.map(|file| file.expect("a folder entry").path());
    paths.filter_map(|path| Some((number_of(&path)?, path))).max().expect("a file with increments").1
}

/// The number of a file like `appendonly.aof.12.incr.aof`.
fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".incr.aof")?;
    name.rsplit('.').next()?.parse().ok()
}

/// Returns the message of a panic.
pub fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().map_or("see its log", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_numbers() {
        assert_eq!(number_of(Path::new("appendonlydir/appendonly.aof.12.incr.aof")), Some(12));
        assert_eq!(number_of(Path::new("appendonlydir/appendonly.aof.12.base.rdb")), None);
        assert_eq!(number_of(Path::new("appendonlydir/appendonly.aof.manifest")), None);
    }
}
