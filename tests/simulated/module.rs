//! The module in a simulated server, with the unchanged layers core, command and host.

use redis_lock::host::Locks;
use redis_lock::server::{Node, Reply, ServerKind, Unnoticed};

use super::clients::{Stage, on_every_kind, received};

#[test]
fn session_ends_with_its_connection() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 3000 SESSION"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        assert_eq!(stage.pass(10_000), []);
        stage.0.hang_up(alice);
        assert_eq!(stage.turn(), received(bob, 1));
    });
}

#[test]
fn each_node_has_its_own_state() {
    let one = Stage::on(ServerKind::Redis70);
    let other = Stage(Node::new::<Locks>(ServerKind::Valkey9));
    let [(alice, bob), (_, carol)] = [&one, &other].map(|stage| (stage.0.connect(), stage.0.connect()));
    assert_eq!(one.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
    assert_eq!(one.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
    assert_eq!(other.run(carol, "LOCK.ACQUIRE door carol"), received(carol, 1));
    assert_eq!(other.run(carol, "LOCK.RELEASE door carol"), received(carol, 0));
    assert_eq!(one.run(alice, "LOCK.RELEASE door alice").len(), 2);
}

#[test]
fn lease_of_closed_connection_is_not_renewed() {
    on_every_kind(|stage, alice, _| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 100 SESSION"), received(alice, 1));
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE gate alice PX 270 SESSION"), received(alice, 1));
        stage.stream();
        stage.0.hang_up(alice);
        // The renewals of both leases are due in the iteration in which the connection closes.
        Node::pass_us(95_000);
        stage.turn();
        let mut stream = stage.stream();
        stream.sort();
        assert_eq!(stream, ["DEL door", "DEL gate"]);
    });
}

#[test]
fn detached_entry_expires_in_pause_and_timer_stops() {
    on_every_kind(|stage, alice, bob| {
        stage.run(alice, "CONFIG SET lock.rejoin-grace-ms 500");
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        stage.run(alice, "CLIENT PAUSE 100000 WRITE");
        stage.0.hang_up(bob);
        stage.pass(500);
        assert!(stage.left() > 0, "the queue entry of bob");
        stage.pass(1);
        assert_eq!(stage.left(), 0);
        stage.pass(100);
        assert_eq!(stage.0.next_wake(), None);
    });
}

/// Stalls for a second. After that a background write panics in the simulated server, until the server has noticed that its
/// replicas are missing.
fn stall_while_replicas_are_missing(stage: &Stage) {
    Node::pass_us(1_000_000);
    stage.0.change_unnoticed(Unnoticed::NoReplicas);
}

#[test]
fn second_stall_is_detected_after_all_waits_ended() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 1"), []);
        Node::pass_us(1_000_000);
        assert_eq!(stage.turn(), [(bob, Reply::Nil)]);
        stall_while_replicas_are_missing(&stage);
        stage.turn();
        Node::pass_us(300_000);
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        assert_eq!(stage.run(alice, "DEL door"), received(alice, 1));
        stage.0.notice();
        stage.0.set_fence(None);
        assert_eq!(stage.pass(1500), received(bob, 1));
    });
}

#[test]
fn stall_is_detected_while_grant_is_delivered() {
    let stage = Stage::on(ServerKind::Redis8);
    let [alice, bob, carol] = [(); 3].map(|()| stage.0.connect());
    assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
    assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
    stage.send(bob, "LOCK.RELEASE door bob");
    assert_eq!(stage.run(carol, "LOCK.ACQUIRE door carol BLOCK 0"), []);
    // Bob gets his reply at the end of the iteration. That releases the lock to Carol, whose reply comes in the next
    // iteration.
    stage.send(alice, "LOCK.RELEASE door alice");
    stage.0.turn();
    stage.0.hang_up(carol);
    stall_while_replicas_are_missing(&stage);
    stage.turn();
    stage.0.notice();
    stage.0.set_fence(None);
    assert_eq!(stage.run(alice, "GET door"), [(alice, Reply::Bytes(b"carol".to_vec()))]);
    stage.pass(1500);
    assert_eq!(stage.run(alice, "EXISTS door"), received(alice, 0));
}

/// A score is exact up to 2^53, and the expiry time of a key is an integer.
#[test]
fn granted_share_ends_before_2_53_unlike_mutex() {
    on_every_kind(|stage, alice, bob| {
        for (command, write) in [
            ("SHARE", ["DEL door", "ZADD door 9007199254740991 bob", "PEXPIREAT door 9007199254740991"].as_slice()),
            ("ACQUIRE", &["SET door bob PXAT 9007199254740996"]),
        ] {
            assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
            let lease = (1 << 53) - 1 - stage.0.now_ms();
            assert_eq!(stage.run(bob, &format!("LOCK.{command} door bob PX {lease} BLOCK 0")), []);
            assert_eq!(stage.pass(5), []);
            stage.stream();
            assert_eq!(stage.run(alice, "LOCK.RELEASE door alice").len(), 2);
            assert_eq!(stage.stream(), write);
            assert_eq!(stage.run(bob, "LOCK.RELEASE door bob"), received(bob, 0));
        }
    });
}

#[test]
fn many_expired_members_delay_one_request() {
    on_every_kind(|stage, alice, bob| {
        stage.send(alice, "ZADD door inf alice");
        (0..1100).for_each(|number| stage.send(alice, &format!("ZADD door 1 passed{number}")));
        stage.turn();
        let ask = "LOCK.SHARE door bob LIMIT 2";
        assert_eq!(stage.run(bob, ask), [(bob, Reply::Nil)], "there are more expired members than a request counts");
        assert_eq!(stage.run(bob, ask), received(bob, 1), "some were removed");
        assert_eq!(stage.run(alice, "DEL door"), received(alice, 1));
        assert_eq!(stage.left(), 0);
    });
}
