//! A cluster of three masters. One of them has two replicas, and the locks are in its slots; the other two have no
//! replicas, they vote.

use support::cluster::{Node as Member, bus_port, form, id_of, slots_of, start_node};
use support::network::{Network, Traffic, address_of};
use support::replicas::{in_step, in_time};
use support::{Client, Reply, Server, Setup};

use super::nodes::{NODES, Node, Nodes, Others};
use super::{DOWN_AFTER_MS, config};

const MASTERS: [usize; 3] = [0, NODES, NODES + 1];

struct Voters(Vec<Node>);

pub fn start(with_period: bool) -> Nodes {
    let network = Network::default();
    let mut nodes: Vec<Node> =
        (0..NODES + MASTERS.len() - 1).map(|host| start_host(&network, host, with_period)).collect();
    let members: Vec<Member<'_>> = nodes.iter().map(member).collect();
    form(&members, &MASTERS);
    let id = id_of(&nodes[0].server);
    for replica in &nodes[1..NODES] {
        replica.server.client().ok(&format!("CLUSTER REPLICATE {id}"));
        in_step(&replica.server);
    }
    in_time("all nodes agree", || nodes.iter().all(|node| agrees(node, &id)));
    let tag = tag_in(&mut nodes[0].server.client(), slots_of(0, MASTERS.len()).1);
    let others = Box::new(Voters(nodes.split_off(NODES)));
    Nodes { network, tag, nodes, others }
}

/// A node at the addresses that the network knows.
fn member(node: &Node) -> Member<'_> {
    let bus = node.bus.as_ref().expect("a node of a cluster");
    Member { server: &node.server, port: node.address.port, bus: bus.port }
}

fn start_host(network: &Network, host: usize, with_period: bool) -> Node {
    let (address, bus) = (network.open(host, Traffic::Data), network.open(host, Traffic::Bus));
    let setup = Setup::new().config(&config(with_period)).config(&format!(
        "bind-source-addr {}\n\
         cluster-enabled yes\n\
         cluster-node-timeout {DOWN_AFTER_MS}\n\
         cluster-announce-ip 127.0.0.1\n\
         cluster-announce-port {}\n\
         cluster-announce-bus-port {}\n\
         cluster-require-full-coverage no\n\
         cluster-replica-validity-factor 0\n\
         cluster-allow-replica-migration no",
        address_of(host),
        address.port,
        bus.port
    ));
    let server = start_node(&setup);
    address.leads_to(server.port());
    bus.leads_to(bus_port(&server));
    let setup = setup.config(&format!("cluster-port {}", bus_port(&server)));
    Node { server, setup, address, bus: Some(bus), frozen: None }
}

/// Whether the cluster works for a node, all others are connected, and the node knows that one as a master.
fn agrees(node: &Node, master: &str) -> bool {
    let text = |line| match node.server.ask(line) {
        Reply::Text(text) => String::from_utf8_lossy(&text).into_owned(),
        _ => String::new(),
    };
    let (nodes, state) = (text("CLUSTER NODES"), text("CLUSTER INFO"));
    let is_connected = |line: &&str| {
        let is_known = line.contains("myself") || line.contains(" connected");
        is_known && !line.contains("handshake") && !line.contains("fail")
    };
    let is_master = |line: &str| line.starts_with(master) && line.contains("master");
    nodes.lines().filter(is_connected).count() == NODES + MASTERS.len() - 1
        && nodes.lines().any(is_master)
        && state.contains("cluster_state:ok")
}

/// A hash tag whose slot is not above this one.
fn tag_in(client: &mut Client, last: i64) -> String {
    let is_here = |tag: &String| client.run(&format!("CLUSTER KEYSLOT {tag}")).int() <= last;
    (0..).map(|number| format!("{{{number}}}")).find(is_here).expect("a tag for every slot")
}

impl Voters {
    fn id(nodes: &[Node], master: usize) -> Option<String> {
        let Reply::Text(id) = nodes[master].server.ask("CLUSTER MYID") else { return None };
        Some(String::from_utf8_lossy(&id).into_owned())
    }
}

impl Others for Voters {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn agree(&self, nodes: &[Node], master: usize) -> bool {
        Self::id(nodes, master).is_some_and(|id| nodes.iter().chain(&self.0).all(|node| agrees(node, &id)))
    }

    /// A replica whose master has become a replica of another can stay with it.
    fn mend(&self, nodes: &[Node], master: usize) {
        let (port, Some(id)) = (nodes[master].address.port.to_string(), Self::id(nodes, master)) else { return };
        for node in nodes.iter().filter(|node| node.shows("master_link_status").as_deref() == Some("up")) {
            if node.shows("master_port").is_some_and(|other| other != port) {
                node.server.ask(&format!("CLUSTER REPLICATE {id}"));
            }
        }
    }

    fn promote(&self, replica: &Server) {
        replica.ask("CLUSTER FAILOVER FORCE");
    }

    fn logs(&self) -> Vec<String> {
        self.0.iter().map(|node| format!("{}\n{}", node.server.log(), node.server.ask("CLUSTER NODES"))).collect()
    }

    fn on_restart(&self, _: &Node) -> String {
        String::new()
    }
}
