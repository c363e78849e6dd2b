//! Events at moments that no client can choose: between the close of a connection and its processing, in the iteration after a
//! stall, or when the clock is set back.

use redis_lock::server::{Node, Reply, ServerKind, Unnoticed, Value};

use super::stage::{Stage, on_every_kind, received};

#[test]
fn detached_entry_expires_in_pause_and_timer_stops() {
    on_every_kind(|stage, alice, bob| {
        stage.run(alice, "CONFIG SET lock.rejoin-grace-ms 500");
        stage.run(alice, "LOCK.ACQUIRE door alice");
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        stage.run(alice, "CLIENT PAUSE 100000 WRITE");
        stage.node.hang_up(bob);
        stage.wait(500);
        assert!(stage.left() > 0, "the queue entry of bob");
        stage.wait(1);
        assert_eq!(stage.left(), 0);
        stage.wait(100);
        assert_eq!(stage.node.next_wake(), None);
    });
}

/// Stalls for a second. After that a background write panics in the simulated server, until the server has noticed that its
/// replicas are missing.
fn stall_while_replicas_are_missing(stage: &Stage) {
    Node::pass_us(1_000_000);
    stage.node.change_unnoticed(Unnoticed::NoReplicas);
}

#[test]
fn second_stall_is_detected_after_all_waits_ended() {
    on_every_kind(|stage, alice, bob| {
        stage.run(alice, "LOCK.ACQUIRE door alice");
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 1"), []);
        Node::pass_us(1_000_000);
        assert_eq!(stage.settled().0, [(bob, Reply::Nil)]);
        stall_while_replicas_are_missing(stage);
        stage.settle();
        Node::pass_us(300_000);
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        assert_eq!(stage.run(alice, "DEL door"), received(alice, 1));
        stage.node.notice();
        stage.node.set_fence(None);
        assert_eq!(stage.wait(1500), received(bob, 1));
    });
}

#[test]
fn stall_is_detected_while_grant_is_delivered() {
    let stage = Stage::on(ServerKind::Redis8);
    let [alice, bob, carol] = [stage.alice, stage.asker, stage.listener];
    stage.run(alice, "LOCK.ACQUIRE door alice");
    assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
    stage.send(bob, "LOCK.RELEASE door bob");
    assert_eq!(stage.run(carol, "LOCK.ACQUIRE door carol BLOCK 0"), []);
    // Bob gets the reply at the end of the iteration. That releases the lock to Carol, whose reply comes in the next
    // iteration.
    stage.send(alice, "LOCK.RELEASE door alice");
    stage.turn();
    stage.node.hang_up(carol);
    stall_while_replicas_are_missing(&stage);
    stage.settle();
    stage.node.notice();
    stage.node.set_fence(None);
    assert_eq!(stage.run(alice, "GET door"), [(alice, Reply::Bytes(b"carol".to_vec()))]);
    stage.wait(1500);
    assert_eq!(stage.run(alice, "EXISTS door"), received(alice, 0));
}

/// Returns the end of each lease of the lock.
fn ends(stage: &Stage) -> Vec<i64> {
    let keyspace = stage.node.keyspace();
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
    for (command, takers, recovery_ms) in [("ACQUIRE", 1, 0), ("REENTER", 1, 300), ("SHARE", 2, 0), ("SHARE", 2, 300)] {
        on_every_kind(|stage, alice, bob| {
            stage.run(alice, "CONFIG SET min-replicas-max-lag 0");
            for (client, name, lease_ms) in [(alice, "alice", 400), (bob, "bob", 900)].into_iter().take(takers) {
                stage.run(client, &format!("LOCK.{command} door {name} PX {lease_ms} SESSION"));
            }
            stage.run(stage.node.connect(), "LOCK.ACQUIRE door carol BLOCK 0");
            // The sessions of the gate are processed first, and the queue of the door before its sessions.
            stage.run(alice, "LOCK.ACQUIRE gate alice PX 100 SESSION");
            stage.run(alice, &format!("CONFIG SET lock.recovery-ms {recovery_ms}"));
            Node::pass_us(2_000_000);
            stage.run(alice, "CONFIG SET lock.max-lease-ms 150");
            while ends(stage).len() < takers || ends(stage).iter().any(|&end| end < stage.node.now_ms()) {
                stage.wait(1);
            }
            for _ in 0..300 {
                stage.wait(1);
                let (now, ends) = (stage.node.now_ms(), ends(stage));
                let is_renewed = ends.len() == takers && ends.iter().all(|end| end - now >= 100);
                assert!(is_renewed, "{command}, {recovery_ms}: {ends:?} at {now}");
            }
        });
    }
}

/// The server's clock is set back between the closes of two connections. The later close counts.
#[test]
fn clock_that_is_set_back_lengthens_no_grace_period() {
    on_every_kind(|stage, one, other| {
        for client in [one, other] {
            let line = "LOCK.ACQUIRE door alice PX 60000 SESSION GRACE 300";
            assert_eq!(stage.run(client, line), received(client, 1));
        }
        stage.node.hang_up(one);
        stage.wait(10);
        stage.node.step_clock(-5000);
        stage.node.hang_up(other);
        stage.wait(320);
        assert_eq!(stage.run(stage.listener, "LOCK.ACQUIRE door bob"), received(stage.listener, 1));
    });
}

#[test]
fn clock_that_is_set_back_logs_no_negative_wait() {
    on_every_kind(|stage, alice, bob| {
        stage.run(alice, "CONFIG SET lock.slowlog-ms 0");
        stage.run(alice, "LOCK.ACQUIRE door alice PX 1000");
        stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0");
        stage.node.step_clock(-500);
        stage.run(alice, "LOCK.RELEASE door alice");
        let Reply::Array(entries) = stage.ask(alice, "LOCK.SLOWLOG GET -1") else { panic!("a list") };
        let [Reply::Array(fields)] = &entries[..] else { panic!("one entry: {entries:?}") };
        assert_eq!(fields[2], Reply::Integer(0));
    });
}
