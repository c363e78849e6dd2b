//! Masters with replicas.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Client, Reply, Server, Setup, patient};

/// How long several servers may take to agree with each other: failure detection, election, synchronisation.
const AGREEMENT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// What every server that takes part in replication is told, so that it does not dawdle.
pub const REPLICATION: &str = "repl-diskless-sync-delay 0\nrepl-ping-replica-period 1";

/// Waits for what several servers have to agree upon.
#[track_caller]
pub fn in_time(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + patient(AGREEMENT);
    while !condition() {
        assert!(Instant::now() < deadline, "the servers never agreed: {what}");
        sleep(POLL);
    }
}

/// A master with the module.
#[track_caller]
pub fn master(config: &str) -> Server {
    Setup::new().config(REPLICATION).config(config).start()
}

/// One more replica with the module, in step with its master.
#[track_caller]
pub fn replica_of(master: &Server) -> Server {
    let config = format!("replicaof 127.0.0.1 {}", master.port());
    let replica = Setup::new().config(REPLICATION).config(&config).start();
    in_step(&replica);
    replica
}

/// Waits until the replica has its master's data and follows it.
#[track_caller]
pub fn in_step(replica: &Server) {
    let mut client = replica.client();
    in_time("the replica is in step", || follows(&mut client));
}

/// Waits until a replica has all that was written until now, by whomever. WAIT looks at what its own client wrote last, so
/// that writes to `mark`.
#[track_caller]
pub fn replicated(client: &mut Client, mark: &str) {
    client.ok(&format!("SET {mark} x"));
    assert_eq!(client.run("WAIT 1 5000"), 1);
}

fn follows(client: &mut Client) -> bool {
    client.info("replication", "master_link_status").as_deref() == Some("up")
}

/// What the server says it is: master or slave. None while it closes connections.
pub fn role(server: &Server) -> Option<String> {
    let reply = Client::connect(server.port(), super::Protocol::Resp2)?.run("ROLE");
    matches!(reply, Reply::List(_)).then(|| reply.items()[0].string())
}

/// Whether the server is a master and takes commands.
pub fn is_master(server: &Server) -> bool {
    role(server).as_deref() == Some("master")
}
