//! A master with two replicas that three Sentinels watch.

use support::replicas::in_step;
use support::sentinel::Sentinel;
use support::{Server, Setup};

use super::{NODES, Node, Others, Scene};
use crate::network::{Network, Traffic, address_of};
use crate::settings::{self, DOWN_AFTER_MS, REPLICAS};

/// How often Sentinels look, so that they have made the old master a replica soon after it is back.
const PERIODS: &str = "SENTINEL DEBUG INFO-PERIOD 500 PUBLISH-PERIOD 500";

struct Sentinels(Vec<Sentinel>);

pub fn start(with_period: bool) -> Scene {
    let network = Network::new();
    let mut nodes: Vec<Node> = Vec::new();
    for host in 0..NODES {
        let gate = network.open_gate(host, Traffic::Data);
        let setup = Setup::new().config(&settings::config(with_period)).config(&format!(
            "bind-source-addr {}\nreplica-announce-ip 127.0.0.1\nreplica-announce-port {}",
            address_of(host),
            gate.port
        ));
        let role = nodes.first().map(replica_of).unwrap_or_default();
        let server = setup.clone().config(&role).start();
        gate.leads_to(server.port());
        if !role.is_empty() {
            in_step(&server);
        }
        nodes.push(Node { server, setup, gate, bus: None, frozen: None });
    }
    let sentinels = Sentinel::start_three_at(nodes[0].gate.port, REPLICAS, |number, name| {
        format!(
            "bind-source-addr {}\n\
             sentinel announce-ip 127.0.0.1\n\
             sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {name} 3000\n",
            address_of(NODES + number)
        )
    });
    for sentinel in &sentinels {
        sentinel.client().expect("a sentinel that answers").ok(PERIODS);
    }
    let others = Box::new(Sentinels(sentinels));
    Scene { network, tag: String::new(), nodes, others }
}

fn replica_of(master: &Node) -> String {
    format!("replicaof 127.0.0.1 {}", master.gate.port)
}

impl Others for Sentinels {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn are_content(&self, nodes: &[Node], master: usize) -> bool {
        let port = nodes[master].gate.port;
        self.0.iter().all(|sentinel| {
            sentinel.master_port() == Some(port) && sentinel.knows(self.0.len() - 1, REPLICAS) && sentinel.is_calm()
        })
    }

    /// Sentinels do it themselves.
    fn mend(&self, _: &[Node], _: usize) {}

    fn promote(&self, _: &Server) {
        if let Some(sentinel) = self.0.first() {
            sentinel.try_to_fail_over();
        }
    }

    fn logs(&self) -> Vec<String> {
        self.0.iter().map(Sentinel::log).collect()
    }

    fn on_restart(&self, master: &Node) -> String {
        replica_of(master)
    }
}
