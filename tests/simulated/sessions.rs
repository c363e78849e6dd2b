//! Sessions end with their connections and by external writes, and are not renewed while no lease may be lengthened.

use redis_lock::server::{Node, Reply, Value};

use super::clients::{Stage, on_every_kind, received};

/// The connection shares some of its sessions with another connection. Only its own locks are released.
#[test]
fn close_releases_all_locks_in_one_iteration() {
    on_every_kind(|stage, alice, bob| {
        for (client, door) in [(alice, "a"), (bob, "a"), (alice, "b"), (bob, "b"), (alice, "c")] {
            assert_eq!(stage.run(client, &format!("LOCK.ACQUIRE {door} ours PX 3000 SESSION")), received(client, 1));
        }
        stage.stream();
        stage.0.hang_up(alice);
        stage.0.turn();
        assert_eq!(stage.stream(), ["DEL c"]);
    });
}

/// Only a renewal would write to the key.
#[test]
fn session_not_renewed_while_old_master_may_grant() {
    on_every_kind(|stage, alice, _| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 300 SESSION"), received(alice, 1));
        stage.pass(101);
        assert_eq!(stage.stream().len(), 2, "taken and renewed");
        stage.run(alice, "CONFIG SET lock.max-lease-ms 1000");
        stage.run(alice, "CONFIG SET lock.recovery-ms 60000");
        stage.pass(299);
        assert_eq!(stage.stream(), [""; 0]);
    });
}

/// The lock's database is swapped with one that has a lock of the same name: of another holder, or of the same holder in another
/// kind of lock.
#[test]
fn session_ends_when_lock_was_replaced() {
    on_every_kind(|stage, alice, bob| {
        for (command, write) in [
            ("ACQUIRE", "SET door bob"),
            ("ACQUIRE", "HSET door alice 1"),
            ("ACQUIRE", "ZADD door inf alice"),
            ("REENTER", "HSET door bob 1"),
            ("REENTER", "ZADD door inf bob"),
            ("SHARE", "ZADD door inf bob"),
            ("SHARE", "SET door alice"),
        ] {
            assert_eq!(stage.run(alice, &format!("LOCK.{command} door alice PX 300 SESSION")), received(alice, 1));
            assert_eq!(stage.info("sessions"), 1);
            ["SELECT 1", write, "SELECT 0", "SWAPDB 0 1"].into_iter().for_each(|line| stage.send(bob, line));
            stage.pass(101);
            assert_eq!(stage.info("sessions"), 0, "{command}, then {write}");
            assert_eq!(stage.run(bob, "FLUSHALL"), [(bob, Reply::OK)]);
        }
    });
}

#[test]
fn revocation_keeps_lock_that_was_replaced() {
    on_every_kind(|stage, mut alice, bob| {
        for command in ["ACQUIRE", "REENTER", "SHARE"] {
            assert_eq!(stage.run(alice, &format!("LOCK.{command} door alice PX 3000 SESSION")), received(alice, 1));
            stage.0.hang_up(alice);
            assert_eq!(stage.run(bob, "SET door bob"), [(bob, Reply::OK)]);
            assert_eq!(stage.run(bob, "GET door"), [(bob, Reply::Bytes(b"bob".to_vec()))], "{command}");
            assert_eq!(stage.run(bob, "DEL door"), received(bob, 1));
            alice = stage.0.connect();
        }
    });
}

#[test]
fn request_ends_session_of_overwritten_lock() {
    on_every_kind(|stage, alice, bob| {
        for command in ["ACQUIRE", "REENTER", "SHARE"] {
            assert_eq!(stage.run(alice, &format!("LOCK.{command} door alice PX 3000 SESSION")), received(alice, 1));
            assert_eq!(stage.run(bob, "SET door bob"), [(bob, Reply::OK)]);
            assert_eq!(stage.run(bob, "LOCK.ACQUIRE door carol"), [(bob, Reply::Nil)]);
            stage.pass(100); // The session ends long before its renewal is due.
            assert_eq!(stage.info("sessions"), 0, "{command}");
            assert_eq!(stage.run(bob, "DEL door"), received(bob, 1));
        }
    });
}

#[test]
fn lease_not_extended_while_old_master_may_grant() {
    on_every_kind(|stage, alice, _| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 500"), received(alice, 1));
        for hold in 1..=2 {
            assert_eq!(stage.run(alice, "LOCK.REENTER gate alice PX 500"), received(alice, hold));
        }
        stage.run(alice, "CONFIG SET lock.max-lease-ms 1000");
        stage.run(alice, "CONFIG SET lock.recovery-ms 60000");
        for line in ["EXTEND door alice PX 900", "ACQUIRE door alice PX 900", "REENTER gate alice PX 900"] {
            let replies = stage.run(alice, &format!("LOCK.{line}"));
            assert!(matches!(replies[..], [(_, Reply::Error(_))]), "{line}: {replies:?}");
        }
        assert_eq!(stage.run(alice, "LOCK.RELEASE gate alice"), received(alice, 1), "a release lengthens no lease");
    });
}

/// Returns the end of each lease of the lock.
fn ends(stage: &Stage) -> Vec<i64> {
    let keyspace = stage.0.keyspace();
    match keyspace.get(0, b"door").map(|entry| (&entry.value, entry.expiry)) {
        None => Vec::new(),
        Some((Value::SortedSet(members), _)) => members.values().map(|score| score.0 as i64).collect(),
        Some((_, expiry)) => expiry.into_iter().collect(),
    }
}

/// The server stalls, and `lock.max-lease-ms` is lowered before the locks are returned. Each is renewed after a third of its
/// shorter lease.
#[test]
fn returned_lock_is_renewed_for_shorter_lease() {
    for (command, takers) in [("ACQUIRE", 1), ("REENTER", 1), ("SHARE", 2)] {
        for recovery_ms in [0, 300] {
            on_every_kind(|stage, alice, bob| {
                stage.run(alice, "CONFIG SET min-replicas-max-lag 0");
                for (client, name, lease_ms) in [(alice, "alice", 400), (bob, "bob", 900)].into_iter().take(takers) {
                    stage.run(client, &format!("LOCK.{command} door {name} PX {lease_ms} SESSION"));
                }
                stage.run(stage.0.connect(), "LOCK.ACQUIRE door carol BLOCK 0");
                // The sessions of the gate are processed first, and the queue of the door before its sessions.
                stage.run(alice, "LOCK.ACQUIRE gate alice PX 100 SESSION");
                stage.run(alice, &format!("CONFIG SET lock.recovery-ms {recovery_ms}"));
                Node::pass_us(2_000_000);
                stage.run(alice, "CONFIG SET lock.max-lease-ms 150");
                while ends(&stage).len() < takers || ends(&stage).iter().any(|&end| end < stage.0.now_ms()) {
                    stage.pass(1);
                }
                for _ in 0..300 {
                    stage.pass(1);
                    let (now, ends) = (stage.0.now_ms(), ends(&stage));
                    let is_renewed = ends.len() == takers && ends.iter().all(|end| end - now >= 100);
                    assert!(is_renewed, "{command}, {recovery_ms}: {ends:?} at {now}");
                }
            });
        }
    }
}
