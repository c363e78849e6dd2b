//! A cluster of two masters, one of which has every slot at first.

use support::one_node::{with_every_slot, without_slots};
use support::replicas::{in_step, in_time};
use support::scenario::Change;
use support::{Client, Reply, Server, Setup};

/// The other master, and connections to both.
pub struct Other {
    _server: Server,
    here: Client,
    there: Client,
    ids: [String; 2],
}

/// Starts the first with this setup. Returns when it knows the other.
#[track_caller]
pub fn start(setup: &Setup) -> (Server, Other) {
    let (server, other) = (with_every_slot(setup), without_slots(&Setup::new().without_module()));
    let (mut here, mut there) = (server.client(), other.client());
    // What the other claims prevails, and no collision has to be resolved first.
    here.ok("CLUSTER SET-CONFIG-EPOCH 1");
    there.ok("CLUSTER SET-CONFIG-EPOCH 2");
    let bus = there.run("CONFIG GET cluster-port").items()[1].string();
    here.ok(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port()));
    let ids = [&mut here, &mut there].map(|client| client.run("CLUSTER MYID").string());
    in_time("the nodes know each other", || {
        let nodes = [&mut here, &mut there].map(|client| client.run("CLUSTER NODES").string());
        nodes.iter().all(|nodes| ids.iter().all(|id| nodes.contains(id.as_str())) && !nodes.contains("handshake"))
    });
    (server, Other { _server: other, here, there, ids })
}

/// Starts one more node with this setup, a replica of the first in step with it.
#[track_caller]
pub fn replica_of(server: &Server, setup: &Setup) -> Server {
    let replica = without_slots(setup);
    let (mut here, mut there) = (server.client(), replica.client());
    let (id, bus) = (here.run("CLUSTER MYID").string(), here.run("CONFIG GET cluster-port").items()[1].string());
    there.ok(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", server.port()));
    in_time("the replica knows its master", || there.run(&format!("CLUSTER REPLICATE {id}")) == "OK");
    in_step(&replica);
    in_time("both know who is whose", || {
        let is_up = there.run("CLUSTER INFO").string().contains("cluster_state:ok");
        is_up && here.run("CLUSTER NODES").string().contains(&format!("slave {id}"))
    });
    replica
}

impl Other {
    #[track_caller]
    pub fn change(&mut self, change: &Change) {
        let [first, other] = self.ids.clone();
        match change {
            Change::Migrates { key } => {
                let slot = self.slot_of(key);
                self.there.ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {first}"));
                self.here.ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {other}"));
            }
            Change::Leaves { key } => {
                let slot = self.slot_of(key);
                // The node that imports the slot becomes its owner, and tells the others.
                self.there.ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {first}"));
                self.there.ok(&format!("CLUSTER SETSLOT {slot} NODE {other}"));
                let exists = format!("EXISTS {key}");
                let is_told = |reply| matches!(reply, Reply::Error(line) if line.starts_with("MOVED"));
                in_time("the slot has left", || is_told(self.here.run(&exists)));
            }
            Change::Fails => {
                self.here.ok("CLUSTER DELSLOTS 0");
                in_time("the cluster is down", || self.state().contains("cluster_state:fail"));
            }
            Change::Recovers => {
                self.here.ok("CLUSTER ADDSLOTS 0");
                in_time("the cluster is up", || self.state().contains("cluster_state:ok"));
            }
        }
    }

    fn slot_of(&mut self, key: &str) -> i64 {
        self.here.run(&format!("CLUSTER KEYSLOT {key}")).int()
    }

    fn state(&mut self) -> String {
        self.here.run("CLUSTER INFO").string()
    }
}
