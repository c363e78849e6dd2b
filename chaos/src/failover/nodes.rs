//! The servers of a failover scenario: a master with two replicas, and the hosts that replace it: three Sentinels, or
//! two more masters of a cluster, which have no replicas. They reach each other through a [`Network`]; clients reach
//! each of them directly.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::cluster::{Node as Member, bus_port, form, id_of, slots_of, start_node, tags_in};
use support::network::{Address, Network, Traffic, address_of};
use support::process::Process;
use support::replicas::{in_step, in_time};
use support::sentinel::Sentinel;
use support::{Reply, Server, Setup};

use super::{DOWN_AFTER_MS, REPLICAS, config};

/// The master and its replicas are the hosts 0 to 2, whichever is master; the other hosts follow.
pub const NODES: usize = REPLICAS + 1;
const MASTERS: [usize; 3] = [0, NODES, NODES + 1];
const AGREEMENT: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(25);
/// How often Sentinels check the servers, so that they make the old master a replica soon after it is back.
const PERIODS: &str = "SENTINEL DEBUG INFO-PERIOD 500 PUBLISH-PERIOD 500";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Sentinel,
    Cluster,
}

pub struct Nodes {
    pub network: Network,
    /// The end of each key, which is in a slot of the master.
    pub tag: String,
    nodes: Vec<Node>,
    others: Others,
}

struct Node {
    server: Server,
    setup: Setup,
    address: Address,
    bus: Address,
    frozen: Option<Process>,
}

enum Others {
    Sentinels(Vec<Sentinel>),
    Voters(Vec<Node>),
}

impl Node {
    fn start(network: &Network, host: usize, topology: Topology, setup: Setup, role: &str) -> Self {
        let (address, bus) = (network.open(host, Traffic::Data), network.open(host, Traffic::Bus));
        let setup = setup.config(&format!("bind-source-addr {}", address_of(host)));
        if topology == Topology::Sentinel {
            let port = address.port;
            let setup = setup.config(&format!("replica-announce-ip 127.0.0.1\nreplica-announce-port {port}"));
            let server = setup.clone().config(role).start();
            address.leads_to(server.port());
            return Self { server, setup, address, bus, frozen: None };
        }
        let setup = setup.config(&format!(
            "cluster-enabled yes\ncluster-node-timeout {DOWN_AFTER_MS}\ncluster-announce-ip 127.0.0.1\n\
             cluster-announce-port {}\ncluster-announce-bus-port {}\ncluster-require-full-coverage no\n\
             cluster-replica-validity-factor 0\ncluster-allow-replica-migration no",
            address.port, bus.port
        ));
        let server = start_node(&setup);
        address.leads_to(server.port());
        bus.leads_to(bus_port(&server));
        let setup = setup.config(&format!("cluster-port {}", bus_port(&server)));
        Self { server, setup, address, bus, frozen: None }
    }

    fn text(&self, line: &str) -> String {
        let reply = self.server.ask(line);
        if let Reply::Text(text) = reply { String::from_utf8_lossy(&text).into_owned() } else { String::new() }
    }

    fn shows(&self, field: &str) -> Option<String> {
        let info = self.text("INFO replication");
        info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
    }

    fn is_in_step(&self) -> bool {
        self.shows("master_link_status").as_deref() == Some("up")
    }

    /// Whether the cluster works for a node, all others are connected, and the node knows that one as a master.
    fn agrees(&self, master: &str) -> bool {
        let nodes = self.text("CLUSTER NODES");
        let is_connected = |line: &&str| {
            let is_known = line.contains("myself") || line.contains(" connected");
            is_known && !line.contains("handshake") && !line.contains("fail")
        };
        nodes.lines().filter(is_connected).count() == NODES + MASTERS.len() - 1
            && nodes.lines().any(|line| line.starts_with(master) && line.contains("master"))
            && self.text("CLUSTER INFO").contains("cluster_state:ok")
    }
}

impl Nodes {
    pub fn start(topology: Topology, with_period: bool) -> Self {
        let (network, setup) = (Network::default(), Setup::new().config(&config(with_period)));
        let mut nodes: Vec<Node> = Vec::new();
        let hosts = if topology == Topology::Sentinel { NODES } else { NODES + MASTERS.len() - 1 };
        for host in 0..hosts {
            let role = nodes.first().map(replica_of).unwrap_or_default();
            nodes.push(Node::start(&network, host, topology, setup.clone(), &role));
        }
        if topology == Topology::Sentinel {
            nodes[1..].iter().for_each(|replica| in_step(&replica.server));
            let others = Others::Sentinels(start_sentinels(nodes[0].address.port));
            return Self { network, tag: String::new(), nodes, others };
        }
        let member = |node| {
            let Node { server, address, bus, .. }: &Node = node;
            Member { server, port: address.port, bus: bus.port }
        };
        form(&nodes.iter().map(member).collect::<Vec<_>>(), &MASTERS);
        let id = id_of(&nodes[0].server);
        for replica in &nodes[1..NODES] {
            replica.server.client().ok(&format!("CLUSTER REPLICATE {id}"));
            in_step(&replica.server);
        }
        in_time("all nodes agree", || nodes.iter().all(|node| node.agrees(&id)));
        let tag = tags_in(&nodes[0].server, slots_of(0, MASTERS.len())).next().expect("a tag for every slot").name;
        let others = Others::Voters(nodes.split_off(NODES));
        Self { network, tag, nodes, others }
    }

    pub fn other_hosts(&self, host: usize) -> impl Iterator<Item = usize> + use<> {
        let others = match &self.others {
            Others::Sentinels(sentinels) => sentinels.len(),
            Others::Voters(voters) => voters.len(),
        };
        (0..NODES + others).filter(move |other| *other != host)
    }

    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.server.port()).collect()
    }

    pub fn freeze(&mut self, node: usize) {
        // A frozen server cannot show its process.
        let process = Process::of(&self.nodes[node].server);
        process.stop();
        self.nodes[node].frozen = Some(process);
    }

    pub fn thaw(&mut self, node: usize) {
        self.nodes[node].frozen.take().iter().for_each(Process::resume);
    }

    pub fn kill(&mut self, node: usize) {
        Process::kill(&mut self.nodes[node].server);
        self.network.sever(node);
    }

    pub fn restart(&mut self, node: usize, master: usize) {
        let is_sentinel = matches!(self.others, Others::Sentinels(_));
        let role = if is_sentinel { replica_of(&self.nodes[master]) } else { String::new() };
        let node = &mut self.nodes[node];
        let setup = node.setup.clone().in_directory_of(&node.server).on_port(node.server.port());
        node.server = setup.config(&role).start();
    }

    /// Promotes the replica that has received most of this master, before the others notice that the master is down.
    /// The promotion can be refused: then they notice it in time.
    pub fn promote_a_replica_of(&self, master: usize) {
        let received = |node: &usize| self.nodes[*node].shows("slave_repl_offset")?.parse::<u64>().ok();
        match &self.others {
            Others::Sentinels(sentinels) => drop(sentinels[0].try_to_fail_over()),
            Others::Voters(_) => {
                let latest = (0..NODES).filter(|node| *node != master).max_by_key(received);
                latest.map(|node| self.nodes[node].server.ask("CLUSTER FAILOVER FORCE"));
            }
        }
    }

    pub fn require_replicas(&self, master: usize, count: usize) {
        self.nodes[master].server.ask(&format!("CONFIG SET min-replicas-to-write {count}"));
    }

    pub fn wait_for_promotion(&self, old: usize) -> Result<usize, String> {
        self.in_time("a replica is promoted", || (0..NODES).find(|node| *node != old && self.is_master(*node)))
    }

    pub fn wait_until_whole(&self) -> Result<usize, String> {
        self.in_time("one master, and all its replicas in step", || {
            let masters: Vec<usize> = (0..NODES).filter(|node| self.is_master(*node)).collect();
            let [master] = masters[..] else { return None };
            let connected = self.nodes[master].shows("connected_slaves");
            let are_in_step = || (0..NODES).all(|node| node == master || self.nodes[node].is_in_step());
            let agree = self.agree(master)?;
            (connected == Some(REPLICAS.to_string()) && are_in_step() && agree).then_some(master)
        })
    }

    fn is_master(&self, node: usize) -> bool {
        self.nodes[node].shows("role").as_deref() == Some("master")
    }

    /// Whether the hosts that replace a master agree that this one is it, and that all is well.
    fn agree(&self, master: usize) -> Option<bool> {
        let port = self.nodes[master].address.port;
        match &self.others {
            Others::Sentinels(sentinels) => Some(sentinels.iter().all(|sentinel| {
                let knows_all = sentinel.knows(sentinels.len() - 1, REPLICAS);
                sentinel.master_port() == Some(port) && knows_all && sentinel.is_calm()
            })),
            Others::Voters(voters) => {
                let id = Some(self.nodes[master].text("CLUSTER MYID")).filter(|id| !id.is_empty())?;
                // A replica whose master has become a replica of another can stay with it: an operator has to move it.
                for node in self.nodes.iter().filter(|node| node.is_in_step()) {
                    if node.shows("master_port").is_some_and(|other| other != port.to_string()) {
                        node.server.ask(&format!("CLUSTER REPLICATE {id}"));
                    }
                }
                Some(self.nodes.iter().chain(voters).all(|node| node.agrees(&id)))
            }
        }
    }

    fn in_time<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> Result<T, String> {
        let deadline = Instant::now() + AGREEMENT;
        loop {
            if let Some(found) = condition() {
                return Ok(found);
            }
            if Instant::now() > deadline {
                let last = |node: &Node| node.server.log().lines().rev().take(25).collect::<Vec<_>>().join("\n");
                let logs = self.nodes.iter().map(last).collect::<Vec<_>>().join("\n--\n");
                return Err(format!("never came true: {what}; the ends of the logs, the last line first:\n{logs}"));
            }
            sleep(POLL);
        }
    }
}

fn replica_of(master: &Node) -> String {
    format!("replicaof 127.0.0.1 {}", master.address.port)
}

fn start_sentinels(port: u16) -> Vec<Sentinel> {
    let sentinels = Sentinel::start_three_at(port, REPLICAS, |number, name| {
        format!(
            "bind-source-addr {}\nsentinel announce-ip 127.0.0.1\n\
             sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}\nsentinel failover-timeout {name} 3000\n",
            address_of(NODES + number)
        )
    });
    sentinels.iter().for_each(|sentinel| sentinel.client().expect("a sentinel that answers").ok(PERIODS));
    sentinels
}
