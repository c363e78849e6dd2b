//! A real cluster: three masters, each with one replica, all with the module.

use super::replicas::{REPLICATION, in_step, in_time};
use super::{Client, Reply, Server, Setup, bytes_of, free_port};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// The nodes exchange news at half this interval until the cluster is complete.
const GOSSIP_MS: u32 = 600;

/// A bus port that was free can be taken by another process before the server binds it.
const ATTEMPTS: u32 = 5;

/// Masters first, then the replica of each in the same order.
pub struct Cluster {
    nodes: Vec<Server>,
}

/// A hash tag, braces included, and the slot of every key that has it.
#[derive(Clone, Debug)]
pub struct Tag {
    pub name: String,
    pub slot: i64,
}

impl Tag {
    /// A key of this tag's slot.
    pub fn key(&self, name: &str) -> String {
        format!("{name}{}", self.name)
    }
}

impl Cluster {
    /// Servers that think each other dead after `node_timeout_ms` of silence. No replica takes over by itself.
    #[track_caller]
    pub fn start(node_timeout_ms: u32, config: &str) -> Self {
        let setup = Setup::new().config(REPLICATION).config(config).config(&format!(
            "cluster-node-timeout {GOSSIP_MS}\n\
             cluster-require-full-coverage no\n\
             cluster-replica-validity-factor 0\n\
             cluster-replica-no-failover yes\n\
             cluster-allow-replica-migration no"
        ));
        let cluster = Self { nodes: (0..2 * MASTERS).map(|_| start_node(&setup)).collect() };
        let all: Vec<Node<'_>> = cluster.nodes.iter().map(Node::of).collect();
        form(&all, &[0, 1, 2]);
        cluster.attach_replicas();
        cluster.wait_until_complete();
        for server in &cluster.nodes {
            server.client().ok(&format!("CONFIG SET cluster-node-timeout {node_timeout_ms}"));
        }
        cluster
    }

    pub fn master(&self, number: usize) -> &Server {
        self.nodes.get(number).expect("the number of a master")
    }

    pub fn master_mut(&mut self, number: usize) -> &mut Server {
        self.nodes.get_mut(number).expect("the number of a master")
    }

    pub fn replica(&self, number: usize) -> &Server {
        self.nodes.get(MASTERS + number).expect("the number of a master")
    }

    /// From now on a replica takes over when its master is dead.
    #[track_caller]
    pub fn let_replicas_take_over(&self) {
        for replica in self.nodes.iter().skip(MASTERS) {
            replica.client().ok("CONFIG SET cluster-replica-no-failover no");
        }
    }

    pub fn masters(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().take(MASTERS)
    }

    /// A tag whose slot is the master's.
    #[track_caller]
    pub fn tag_of(&self, number: usize) -> Tag {
        self.tags_of(number).next().expect("a tag for every slot")
    }

    /// Tags whose slots are the master's, without end.
    pub fn tags_of(&self, number: usize) -> impl Iterator<Item = Tag> {
        tags_in(self.master(number), slots_of(number, MASTERS))
    }

    fn attach_replicas(&self) {
        for number in 0..MASTERS {
            let master = id_of(self.master(number));
            self.replica(number).client().ok(&format!("CLUSTER REPLICATE {master}"));
        }
    }

    fn wait_until_complete(&self) {
        for number in 0..MASTERS {
            in_step(self.replica(number));
        }
        for server in &self.nodes {
            let mut client = server.client();
            in_time("the cluster works", || {
                let replicas = nodes_known_to(&mut client).iter().filter(|node| node.contains("slave")).count();
                replicas == MASTERS && works(&mut client)
            });
        }
    }
}

/// A server with the ports at which the other nodes reach it.
pub struct Node<'s> {
    pub server: &'s Server,
    pub port: u16,
    pub bus: u16,
}

impl<'s> Node<'s> {
    pub fn of(server: &'s Server) -> Self {
        Self { server, port: server.port(), bus: bus_port(server) }
    }
}

/// Starts a server that can be a node of a cluster, on a free bus port.
#[track_caller]
pub fn start_node(setup: &Setup) -> Server {
    let setup = setup.clone().config("cluster-enabled yes");
    for _ in 0..ATTEMPTS {
        match setup.clone().config(&format!("cluster-port {}", free_port())).try_start() {
            Ok(server) => return server,
            Err(ended) => assert!(ended.port_was_taken(), "the server did not start; its log:\n{}", ended.log),
        }
    }
    panic!("no free port for the cluster bus");
}

/// Makes one cluster of these nodes, in which the masters have all slots in equal ranges.
#[track_caller]
pub fn form(nodes: &[Node<'_>], masters: &[usize]) {
    for (number, master) in masters.iter().enumerate() {
        let mut client = nodes[*master].server.client();
        let (first, last) = slots_of(number, masters.len());
        client.ok(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        client.ok(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
    }
    // Each node meets each other node, which is quicker than gossip.
    for (number, node) in nodes.iter().enumerate() {
        let mut client = node.server.client();
        for other in nodes.iter().skip(number + 1) {
            client.ok(&format!("CLUSTER MEET 127.0.0.1 {} {}", other.port, other.bus));
        }
    }
    for node in nodes {
        let mut client = node.server.client();
        in_time("each node knows all nodes and slots", || {
            let known = nodes_known_to(&mut client);
            known.len() == nodes.len() && known.iter().all(|node| is_in_touch(node)) && works(&mut client)
        });
    }
}

/// Tags whose slots are between the first and the last one, without end.
pub fn tags_in(server: &Server, (first, last): (i64, i64)) -> impl Iterator<Item = Tag> + use<> {
    let mut client = server.client();
    let tags = (0..).map(move |attempt| {
        let name = format!("{{{attempt}}}");
        let slot = client.run(&format!("CLUSTER KEYSLOT {name}")).int();
        Tag { name, slot }
    });
    tags.filter(move |tag| (first..=last).contains(&tag.slot))
}

/// The first and the last slot of a master, of this number of masters.
pub fn slots_of(number: usize, masters: usize) -> (i64, i64) {
    let bound = |number: usize| i64::try_from(SLOTS * number / masters).expect("a slot");
    (bound(number), bound(number + 1) - 1)
}

pub fn bus_port(server: &Server) -> u16 {
    let pair = server.client().run("CONFIG GET cluster-port");
    pair.items().get(1).expect("a value").string().parse().expect("a port")
}

fn nodes_known_to(client: &mut Client) -> Vec<String> {
    client.run("CLUSTER NODES").string().lines().map(str::to_owned).collect()
}

/// Whether a line of CLUSTER NODES shows a node with which there is a working link.
fn is_in_touch(node: &str) -> bool {
    !node.contains("handshake") && (node.contains("myself") || node.contains(" connected"))
}

pub fn id_of(server: &Server) -> String {
    server.client().run("CLUSTER MYID").string()
}

/// What the node thinks of the cluster: it works, and every slot has a master.
#[track_caller]
fn works(client: &mut Client) -> bool {
    let text = client.run("CLUSTER INFO").string();
    let says = |line: String| text.lines().any(|own| own == line);
    says("cluster_state:ok".to_owned()) && says(format!("cluster_slots_ok:{SLOTS}"))
}

#[track_caller]
pub fn keys_in(client: &mut Client, slot: i64) -> i64 {
    client.run(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).int()
}

/// The port to which a request was sent on.
#[track_caller]
pub fn moved_to(reply: &Reply) -> u16 {
    assert_eq!(reply.code(), "MOVED", "{reply:?}");
    let port = reply.error().rsplit(':').next().expect("an address");
    port.parse().unwrap_or_else(|_| panic!("no port in {reply:?}"))
}

/// Sends a command to a node that may not have heard of the latest yet, until it does as asked.
#[track_caller]
pub fn insist(server: &Server, line: &str) -> Client {
    let mut client = server.client();
    in_time(line, || !client.call(&bytes_of(line)).is_error());
    client
}
