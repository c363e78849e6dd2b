//! The servers of a failover scenario: a master with two replicas, and the hosts that replace it, Sentinels or the
//! other masters of a cluster. They reach each other through a [`Network`]; clients reach each of them directly.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::network::{Address, Network};
use support::process::Process;
use support::{Reply, Server, Setup};

use super::{REPLICAS, cluster, sentinel};

/// The master and its replicas are the hosts 0 to 2, whichever is master; the other hosts follow.
pub const NODES: usize = REPLICAS + 1;
/// How long the servers may take to agree.
const AGREEMENT: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Sentinel,
    Cluster,
}

pub struct Nodes {
    pub network: Network,
    /// The end of each key, which is in a slot of the master.
    pub tag: String,
    pub nodes: Vec<Node>,
    pub others: Box<dyn Others>,
}

/// A server that is a master or a replica.
pub struct Node {
    pub server: Server,
    pub setup: Setup,
    pub address: Address,
    /// Of the cluster bus.
    pub bus: Option<Address>,
    pub frozen: Option<Process>,
}

/// The hosts that replace a master.
pub trait Others: Send {
    fn count(&self) -> usize;

    /// Whether they agree that this one is the master, and that all is well.
    fn agree(&self, nodes: &[Node], master: usize) -> bool;

    /// Does what an operator has to do so that all replicas follow the master directly.
    fn mend(&self, nodes: &[Node], master: usize);

    /// Promotes a replica before they notice that the master is down. The promotion can be refused: then they notice it
    /// in time.
    fn promote(&self, replica: &Server);

    fn logs(&self) -> Vec<String>;

    /// Lines for the configuration of a node that starts again.
    fn on_restart(&self, master: &Node) -> String;
}

/// The ports of the nodes, which change when a node starts again.
#[derive(Default)]
pub struct Ports([AtomicU16; NODES]);

impl Ports {
    pub fn of(&self, node: usize) -> u16 {
        self.0[node].load(Ordering::Relaxed)
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sentinel => "Sentinel",
            Self::Cluster => "cluster",
        })
    }
}

impl Node {
    /// A field of INFO replication.
    pub fn shows(&self, field: &str) -> Option<String> {
        let Reply::Text(info) = self.server.ask("INFO replication") else { return None };
        let info = String::from_utf8_lossy(&info);
        info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
    }
}

impl Nodes {
    pub fn start(topology: Topology, with_period: bool) -> Self {
        match topology {
            Topology::Sentinel => sentinel::start(with_period),
            Topology::Cluster => cluster::start(with_period),
        }
    }

    /// All hosts but this one.
    pub fn other_hosts(&self, host: usize) -> impl Iterator<Item = usize> + use<> {
        (0..NODES + self.others.count()).filter(move |other| *other != host)
    }

    pub fn publish(&self, ports: &Ports) {
        self.nodes.iter().zip(&ports.0).for_each(|(node, port)| port.store(node.server.port(), Ordering::Relaxed));
    }

    pub fn freeze(&mut self, node: usize) {
        // A frozen server cannot show its process.
        let process = Process::of(&self.nodes[node].server);
        process.stop();
        self.nodes[node].frozen = Some(process);
    }

    pub fn thaw(&mut self, node: usize) {
        if let Some(process) = self.nodes[node].frozen.take() {
            process.resume();
        }
    }

    /// Delays replication from a master.
    pub fn delay_replication(&self, master: usize, delay: Duration) {
        (0..NODES).filter(|node| *node != master).for_each(|replica| self.network.slow(master, replica, delay));
    }

    pub fn kill(&mut self, node: usize) {
        Process::kill(&mut self.nodes[node].server);
        self.network.sever(node);
    }

    /// Starts a node that was killed, with nothing but its folder.
    pub fn restart(&mut self, node: usize, master: usize) {
        let lines = self.others.on_restart(&self.nodes[master]);
        let node = &mut self.nodes[node];
        node.server = node.setup.clone().in_directory_of(&node.server).config(&lines).start();
        node.address.leads_to(node.server.port());
    }

    /// Promotes the replica that has received most of this master.
    pub fn promote_a_replica_of(&self, master: usize) {
        let received = |node: &usize| self.nodes[*node].shows("slave_repl_offset")?.parse::<u64>().ok();
        if let Some(node) = (0..NODES).filter(|node| *node != master).max_by_key(received) {
            self.others.promote(&self.nodes[node].server);
        }
    }

    /// Sets how many replicas a master needs for its writes.
    pub fn require_replicas(&self, master: usize, count: usize) {
        self.nodes[master].server.ask(&format!("CONFIG SET min-replicas-to-write {count}"));
    }

    /// Waits until another node than `old` is a master.
    ///
    /// # Errors
    ///
    /// None is in time; the logs show why.
    pub fn wait_for_promotion(&self, old: usize) -> Result<usize, String> {
        self.in_time("a replica is promoted", || (0..NODES).find(|node| *node != old && self.is_master(*node)))
    }

    /// Waits until there is one master, with which all replicas are in step, and returns it.
    ///
    /// # Errors
    ///
    /// There is none in time; the logs show why.
    pub fn wait_until_whole(&self) -> Result<usize, String> {
        self.in_time("one master, and all its replicas in step", || {
            let masters: Vec<usize> = (0..NODES).filter(|node| self.is_master(*node)).collect();
            let [master] = masters[..] else { return None };
            self.others.mend(&self.nodes, master);
            (self.has_all_replicas(master) && self.others.agree(&self.nodes, master)).then_some(master)
        })
    }

    fn is_master(&self, node: usize) -> bool {
        self.nodes[node].shows("role").as_deref() == Some("master")
    }

    fn has_all_replicas(&self, master: usize) -> bool {
        let connected = self.nodes[master].shows("connected_slaves");
        let is_up = |node: usize| self.nodes[node].shows("master_link_status").as_deref() == Some("up");
        connected == Some(REPLICAS.to_string()) && (0..NODES).filter(|node| *node != master).all(is_up)
    }

    fn in_time<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> Result<T, String> {
        let deadline = Instant::now() + AGREEMENT;
        loop {
            if let Some(found) = condition() {
                return Ok(found);
            }
            if Instant::now() > deadline {
                let logs = self.nodes.iter().map(|node| node.server.log()).chain(self.others.logs());
                let logs: Vec<String> = logs.map(|log| last_lines(&log)).collect();
                return Err(format!("never came true: {what}\n{}", logs.join("\n--\n")));
            }
            sleep(POLL);
        }
    }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}
