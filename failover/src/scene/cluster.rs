//! A cluster of three masters. One of them has two replicas, and its slots are where the locks are; the other two have
//! none, they vote.

use std::net::TcpListener;

use support::cluster::{bus_port, id_of};
use support::replicas::{in_step, in_time};
use support::{Client, Protocol, Reply, Server, Setup};

use super::{NODES, Node, Others, Scene};
use crate::network::{Network, Traffic, address_of};
use crate::settings::{self, DOWN_AFTER_MS};

const VOTERS: usize = 2;
const SLOTS: [(u16, u16); 1 + VOTERS] = [(0, 5460), (5461, 10922), (10923, 16383)];
/// A bus port that was free may be taken by somebody else before the server binds it.
const ATTEMPTS: u32 = 5;

struct Voters(Vec<Node>);

pub fn start(with_period: bool) -> Scene {
    let network = Network::new();
    let all: Vec<Node> = (0..NODES + VOTERS).map(|host| start_node(&network, host, with_period)).collect();
    let masters = [0, NODES, NODES + 1];
    for (epoch, (master, (first, last))) in masters.into_iter().zip(SLOTS).enumerate() {
        let mut client = all[master].server.client();
        client.ok(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        client.ok(&format!("CLUSTER SET-CONFIG-EPOCH {}", epoch + 1));
    }
    introduce(&all);
    let id = id_of(&all[0].server);
    for replica in &all[1..NODES] {
        replica.server.client().ok(&format!("CLUSTER REPLICATE {id}"));
        in_step(&replica.server);
    }
    let tag = tag_below(&mut all[0].server.client(), i64::from(SLOTS[0].1));
    let mut nodes = all;
    let others = Box::new(Voters(nodes.split_off(NODES)));
    Scene { network, tag, nodes, others }
}

fn start_node(network: &Network, host: usize, with_period: bool) -> Node {
    let (gate, bus) = (network.open_gate(host, Traffic::Data), network.open_gate(host, Traffic::Bus));
    let setup = Setup::new().config(&settings::config(with_period)).config(&format!(
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
        gate.port,
        bus.port
    ));
    for _ in 0..ATTEMPTS {
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a free port");
        let setup = setup.clone().config(&format!("cluster-port {}", free.port()));
        match setup.try_start() {
            Ok(server) => {
                gate.leads_to(server.port());
                bus.leads_to(bus_port(&server));
                return Node { server, setup, gate, bus: Some(bus), frozen: None };
            }
            Err(ended) => assert!(ended.port_was_taken(), "the server did not start; its log:\n{}", ended.log),
        }
    }
    panic!("no free port for the cluster bus");
}

/// Everybody meets everybody, at the addresses that the network knows.
fn introduce(all: &[Node]) {
    for (number, node) in all.iter().enumerate() {
        let mut client = node.server.client();
        for other in &all[number + 1..] {
            let bus = other.bus.as_ref().expect("a node of a cluster");
            client.ok(&format!("CLUSTER MEET 127.0.0.1 {} {}", other.gate.port, bus.port));
        }
    }
    for node in all {
        let mut client = node.server.client();
        let id = client.run("CLUSTER MYID").string();
        in_time("everybody knows everybody", || is_in_touch(node, &id));
    }
}

/// Whether the cluster works for a node, all others are there, and it knows that one as a master.
fn is_in_touch(node: &Node, known: &str) -> bool {
    let (Reply::Text(nodes), Reply::Text(state)) = (node.answer("CLUSTER NODES"), node.answer("CLUSTER INFO")) else {
        return false;
    };
    let (nodes, state) = (String::from_utf8_lossy(&nodes), String::from_utf8_lossy(&state));
    let in_touch = |line: &&str| {
        let is_there = line.contains("myself") || line.contains(" connected");
        is_there && !line.contains("handshake") && !line.contains("fail")
    };
    let is_master = |line: &str| line.starts_with(known) && line.contains("master");
    nodes.lines().filter(in_touch).count() == NODES + VOTERS
        && nodes.lines().any(is_master)
        && state.contains("cluster_state:ok")
}

fn tag_below(client: &mut Client, last: i64) -> String {
    let is_here = |tag: &String| client.run(&format!("CLUSTER KEYSLOT {tag}")).int() <= last;
    (0..).map(|number| format!("{{{number}}}")).find(is_here).expect("a tag for every slot")
}

impl Others for Voters {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn are_content(&self, nodes: &[Node], master: usize) -> bool {
        let Reply::Text(id) = nodes[master].answer("CLUSTER MYID") else { return false };
        let id = String::from_utf8_lossy(&id);
        nodes.iter().chain(&self.0).all(|node| is_in_touch(node, &id))
    }

    /// A replica whose master has become one of another may stay with it.
    fn mend(&self, nodes: &[Node], master: usize) {
        let port = nodes[master].gate.port.to_string();
        let Reply::Text(id) = nodes[master].answer("CLUSTER MYID") else { return };
        for node in nodes.iter().filter(|node| node.says("master_link_status").as_deref() == Some("up")) {
            if node.says("master_port").is_some_and(|other| other != port) {
                node.answer(&format!("CLUSTER REPLICATE {}", String::from_utf8_lossy(&id)));
            }
        }
    }

    fn promote(&self, replica: &Server) {
        if let Some(mut client) = Client::connect(replica.port(), Protocol::Resp2) {
            client.run("CLUSTER FAILOVER FORCE");
        }
    }

    fn logs(&self) -> Vec<String> {
        self.0.iter().map(|node| format!("{}\n{}", node.server.log(), node.answer("CLUSTER NODES"))).collect()
    }

    fn on_restart(&self, _: &Node) -> String {
        String::new()
    }
}
