//! A cluster of one master that has every slot.

use super::cluster::start_node;
use super::replicas::in_time;
use super::{Server, Setup};

#[track_caller]
pub fn start() -> Server {
    with_every_slot(&Setup::new())
}

#[track_caller]
pub fn with_every_slot(setup: &Setup) -> Server {
    let server = without_slots(setup);
    let mut client = server.client();
    client.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    in_time("the cluster works", || client.run("CLUSTER INFO").string().contains("cluster_state:ok"));
    server
}

/// A node that serves nothing yet.
#[track_caller]
pub fn without_slots(setup: &Setup) -> Server {
    start_node(setup)
}
