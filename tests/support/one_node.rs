//! A cluster of one master that has every slot.

use std::net::TcpListener;

use super::replicas::in_time;
use super::{Server, Setup};

/// A bus port that was free may be taken by somebody else before the server binds it.
const ATTEMPTS: u32 = 5;

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
    let setup = setup.clone().config("cluster-enabled yes");
    for _ in 0..ATTEMPTS {
        let bus = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a free port");
        match setup.clone().config(&format!("cluster-port {}", bus.port())).try_start() {
            Ok(server) => return server,
            Err(ended) => assert!(ended.port_was_taken(), "the server did not start; its log:\n{}", ended.log),
        }
    }
    panic!("no free port for the cluster bus");
}
