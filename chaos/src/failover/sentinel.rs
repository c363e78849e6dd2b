//! A master with two replicas and three Sentinels.

use support::network::{Network, Traffic, address_of};
use support::replicas::in_step;
use support::sentinel::Sentinel;
use support::{Server, Setup};

use super::nodes::{NODES, Node, Nodes, Others};
use super::{DOWN_AFTER_MS, REPLICAS, config};

/// How often Sentinels check the servers, so that they make the old master a replica soon after it is back.
const PERIODS: &str = "SENTINEL DEBUG INFO-PERIOD 500 PUBLISH-PERIOD 500";

struct Sentinels(Vec<Sentinel>);

pub fn start(with_period: bool) -> Nodes {
    let network = Network::default();
    let mut nodes: Vec<Node> = Vec::new();
    for host in 0..NODES {
        let address = network.open(host, Traffic::Data);
        let setup = Setup::new().config(&config(with_period)).config(&format!(
            "bind-source-addr {}\nreplica-announce-ip 127.0.0.1\nreplica-announce-port {}",
            address_of(host),
            address.port
        ));
        let role = nodes.first().map(replica_of).unwrap_or_default();
        let server = setup.clone().config(&role).start();
        address.leads_to(server.port());
        if host > 0 {
            in_step(&server);
        }
        nodes.push(Node { server, setup, address, bus: None, frozen: None });
    }
    let sentinels = Sentinel::start_three_at(nodes[0].address.port, REPLICAS, |number, name| {
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
    Nodes { network, tag: String::new(), nodes, others: Box::new(Sentinels(sentinels)) }
}

fn replica_of(master: &Node) -> String {
    format!("replicaof 127.0.0.1 {}", master.address.port)
}

impl Others for Sentinels {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn agree(&self, nodes: &[Node], master: usize) -> bool {
        let port = nodes[master].address.port;
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
