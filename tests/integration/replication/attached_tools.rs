//! A tool that is attached to a master as a replica, like `redis-cli --replica`: docs/guides/failover.md, condition 2.

use std::time::Duration;

use support::happens_within;
use support::raw::RawConnection;
use support::replicas::{in_time, master, replica_of};

/// Longer than the time for which a lost replica counts with a lag of a second.
const LAG: Duration = Duration::from_secs(5);

#[test]
fn attached_tool_counts_as_replica() {
    let old = master("min-replicas-to-write 1\nmin-replicas-max-lag 1");
    let new = replica_of(&old);
    let mut client = old.client();
    let mut tool = RawConnection::open(old.port());
    tool.send("SYNC");
    in_time("the tool is attached", || {
        tool.send("REPLCONF ACK 0");
        client.info("replication", "min_slaves_good_slaves").as_deref() == Some("2")
    });

    new.client().ok("REPLICAOF NO ONE");
    assert_eq!(new.client().run("LOCK.ACQUIRE door bob PX 60000"), 1);
    let is_refused = happens_within(LAG, || {
        tool.send("REPLCONF ACK 0");
        client.run("LOCK.ACQUIRE door alice PX 60000").is_error()
    });
    assert!(!is_refused, "the tool does not count");
    assert_eq!(client.run("GET door"), "alice", "both servers have granted the lock");

    // With one more it stops when the replica has left.
    client.ok("CONFIG SET min-replicas-to-write 2");
    tool.send("REPLCONF ACK 0");
    assert_eq!(client.run("LOCK.ACQUIRE gate alice PX 60000").code(), "NOREPLICAS");
}
