//! The servers of an experiment: a master with two replicas, and those who replace it, Sentinels or the other masters of a
//! cluster. They talk to each other through a [`Network`]; clients reach each of them directly.

mod cluster;
mod sentinel;

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use support::process::Process;
use support::{Client, Protocol, Reply, Server, Setup};

use crate::network::{Gate, Network};
use crate::settings::REPLICAS;

/// The master and its replicas are the hosts 0 to 2, whoever is master; the others follow.
pub const NODES: usize = REPLICAS + 1;

/// How long the servers may take to agree.
const AGREEMENT: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(25);

/// Who replaces a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Topology {
    Sentinel,
    Cluster,
}

pub struct Scene {
    pub network: Network,
    /// What locks are called there: the slot is that of the master.
    pub tag: String,
    nodes: Vec<Node>,
    others: Box<dyn Others>,
}

/// One that is a master or a replica.
struct Node {
    server: Server,
    setup: Setup,
    gate: Gate,
    /// Of the cluster bus.
    bus: Option<Gate>,
    frozen: Option<Process>,
}

/// Those who replace a master.
trait Others: Send {
    /// How many hosts they are.
    fn count(&self) -> usize;

    /// Whether they agree that this one is the master, and that everything is well.
    fn are_content(&self, nodes: &[Node], master: usize) -> bool;

    /// Does what an operator has to do for all replicas to be attached to the master directly.
    fn mend(&self, nodes: &[Node], master: usize);

    /// Has a replica take over, without waiting until they see that the master is down. It may be refused: then they see
    /// it in time.
    fn promote(&self, replica: &Server);

    fn logs(&self) -> Vec<String>;

    /// What a node is told when it starts again, beside its own configuration.
    fn on_restart(&self, master: &Node) -> String;
}

/// Where the nodes listen, which changes when one starts again.
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
    /// What it answers on a connection of its own. A node that changes its role closes connections; then that is all.
    fn answer(&self, line: &str) -> Reply {
        Client::connect(self.server.port(), Protocol::Resp2).map_or(Reply::Closed, |mut client| client.run(line))
    }

    /// A field of INFO replication.
    fn says(&self, field: &str) -> Option<String> {
        let Reply::Text(info) = self.answer("INFO replication") else { return None };
        let info = String::from_utf8_lossy(&info).into_owned();
        info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
    }
}

impl Scene {
    pub fn start(topology: Topology, with_period: bool) -> Self {
        match topology {
            Topology::Sentinel => sentinel::start(with_period),
            Topology::Cluster => cluster::start(with_period),
        }
    }

    /// All hosts but this one.
    pub fn hosts_beside(&self, host: usize) -> impl Iterator<Item = usize> {
        (0..NODES + self.others.count()).filter(move |other| *other != host)
    }

    pub fn publish(&self, ports: &Ports) {
        for (node, port) in self.nodes.iter().zip(&ports.0) {
            port.store(node.server.port(), Ordering::Relaxed);
        }
    }

    pub fn freeze(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        // It is asked for its number, which it must still be able to tell.
        let process = Process::of(&node.server);
        process.stop();
        node.frozen = Some(process);
    }

    pub fn thaw(&mut self, node: usize) {
        if let Some(process) = self.nodes[node].frozen.take() {
            process.resume();
        }
    }

    /// Delays replication from a master.
    pub fn delay_replication(&self, master: usize, delay: Duration) {
        for replica in (0..NODES).filter(|node| *node != master) {
            self.network.slow(master, replica, delay);
        }
    }

    pub fn kill(&mut self, node: usize) {
        Process::kill(&mut self.nodes[node].server);
        self.network.sever(node);
    }

    /// Starts a node that was killed, with nothing but what its folder has.
    pub fn restart(&mut self, node: usize, master: usize) {
        let more = self.others.on_restart(&self.nodes[master]);
        let node = &mut self.nodes[node];
        node.server = node.setup.clone().in_directory_of(&node.server).config(&more).start();
        node.gate.leads_to(node.server.port());
    }

    /// Has the replica that has heard most of this master take over at once.
    pub fn promote_a_replica_of(&self, master: usize) {
        let heard = |node: &usize| self.nodes[*node].says("slave_repl_offset")?.parse::<u64>().ok();
        let ahead = (0..NODES).filter(|node| *node != master).max_by_key(heard);
        if let Some(node) = ahead {
            self.others.promote(&self.nodes[node].server);
        }
    }

    /// Says how many replicas a master needs for its writes.
    pub fn require_replicas(&self, master: usize, count: usize) {
        self.nodes[master].answer(&format!("CONFIG SET min-replicas-to-write {count}"));
    }

    /// Waits until another node than `old` is a master.
    pub fn wait_for_promotion(&self, old: usize) -> Result<usize, String> {
        let mut found = None;
        self.in_time("a replica is promoted", || {
            found = (0..NODES).find(|node| *node != old && self.is_master(*node));
            found.is_some()
        })?;
        found.ok_or_else(|| "nobody was promoted".to_owned())
    }

    /// Waits until there is one master, whose replicas are in step, and says which.
    pub fn wait_until_whole(&self) -> Result<usize, String> {
        let mut found = 0;
        self.in_time("one master, and all its replicas in step", || {
            let masters: Vec<usize> = (0..NODES).filter(|node| self.is_master(*node)).collect();
            let [master] = masters[..] else { return false };
            found = master;
            self.others.mend(&self.nodes, master);
            self.has_all_replicas(master) && self.others.are_content(&self.nodes, master)
        })?;
        Ok(found)
    }

    fn is_master(&self, node: usize) -> bool {
        self.nodes[node].says("role").as_deref() == Some("master")
    }

    fn has_all_replicas(&self, master: usize) -> bool {
        let attached = self.nodes[master].says("connected_slaves");
        let is_up = |node: usize| self.nodes[node].says("master_link_status").as_deref() == Some("up");
        attached.as_deref() == Some(REPLICAS.to_string().as_str())
            && (0..NODES).filter(|node| *node != master).all(is_up)
    }

    fn in_time(&self, what: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + AGREEMENT;
        while !condition() {
            if Instant::now() > deadline {
                let logs = self.nodes.iter().map(|node| node.server.log()).chain(self.others.logs());
                let logs: Vec<String> = logs.map(|log| last_lines(&log)).collect();
                return Err(format!("never came true: {what}\n{}", logs.join("\n--\n")));
            }
            sleep(POLL);
        }
        Ok(())
    }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}
