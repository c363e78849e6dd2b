//! Sessions at moments that no client can choose: between the close of a connection and its processing, in the iteration after a
//! stall, or when the clock is set.

use redis_lock::server::{LoggedEvent, Node, Reply, Value};

use super::clients::{Stage, on_every_kind, received};

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

/// The server's clock is set back between the closes of two connections. The later close counts.
#[test]
fn clock_that_is_set_back_lengthens_no_grace_period() {
    on_every_kind(|stage, _, bob| {
        let (one, other) = (stage.0.connect(), stage.0.connect());
        for client in [one, other] {
            let line = "LOCK.ACQUIRE door alice PX 60000 SESSION GRACE 300";
            assert_eq!(stage.run(client, line), received(client, 1));
        }
        stage.0.hang_up(one);
        stage.pass(10);
        stage.0.step_clock(-5000);
        stage.0.hang_up(other);
        stage.pass(320);
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob"), received(bob, 1));
    });
}

/// The server stalls until the lease has ended, and the connection closes in this time. The lock is returned for the grace period, and
/// no waiter overtakes.
#[test]
fn lock_whose_lease_ended_in_stall_is_returned() {
    on_every_kind(|stage, _, bob| {
        for take in ["ACQUIRE", "REENTER"] {
            let holder = stage.0.connect();
            let line = format!("LOCK.{take} door alice PX 500 SESSION GRACE 450");
            assert_eq!(stage.run(holder, &line), received(holder, 1));
            stage.send(bob, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
            stage.turn();
            Node::pass_us(700_000);
            stage.0.hang_up(holder);
            assert_eq!(stage.turn(), [], "{take}");
            assert_eq!(ends(&stage), [stage.0.now_ms() + 450], "{take}");
            assert_eq!(stage.info("sessions"), 0);
            assert_eq!(stage.pass(449), [], "{take}");
            assert_eq!(stage.pass(6), received(bob, 1), "{take}");
            assert_eq!(stage.run(bob, "LOCK.RELEASE door bob"), received(bob, 0));
        }
    });
}

/// No entry is left in the module's tables.
#[test]
fn demotion_aborts_waits_for_messages() {
    on_every_kind(|stage, alice, bob| {
        stage.send(bob, "HELLO 3");
        stage.run(bob, "SSUBSCRIBE news");
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        let waiting = stage.run(bob, "LOCK.ACQUIRE door bob PX 500 BLOCK 0 NOTIFY news");
        assert_eq!(waiting, [(bob, Reply::Status("WAITING"))]);
        stage.0.become_replica();
        let is_message = |note: &LoggedEvent| match note {
            LoggedEvent::Published { message, .. } => **message == *b"lost 0 0 bob door",
            _ => false,
        };
        assert_eq!(stage.notes(1000).iter().filter(|note| is_message(note)).count(), 1);
        assert_eq!(stage.left(), 0);
    });
}
