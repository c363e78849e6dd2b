//! The module in a simulated server: the same core, commands and host, linked unchanged.

use redis_lock::host::Locks;
use redis_lock::server::{Node, Reply, ServerKind, Unnoticed};

use super::clients::{Stage, on_every_kind, received};

#[test]
fn a_release_serves_the_next_in_the_same_round() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 500 BLOCK 0"), []);
        stage.stream();
        let mut replies = stage.run(alice, "LOCK.RELEASE door alice");
        replies.sort_by_key(|(client, _)| *client);
        assert_eq!(replies, [received(alice, 0), received(bob, 1)].concat());
        assert_eq!(stage.stream(), ["SET door bob PXAT 1000000000500"]);
    });
}

#[test]
fn the_end_of_a_lease_serves_the_next_one_millisecond_after_its_last() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.REENTER door alice PX 20"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.REENTER door bob BLOCK 0"), []);
        assert_eq!(stage.pass(20), []);
        assert_eq!(stage.pass(1), received(bob, 1));
    });
}

#[test]
fn a_wait_ends_with_nil_on_time() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 30"), []);
        assert_eq!(stage.pass(30), []);
        assert_eq!(stage.pass(1), [(bob, Reply::Nil)]);
    });
}

#[test]
fn a_session_goes_with_its_connection() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 3000 SESSION"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        assert_eq!(stage.pass(10_000), []);
        stage.0.hang_up(alice);
        assert_eq!(stage.turn(), received(bob, 1));
    });
}

/// Who is let go may have been in the way of a share for which there is room.
#[test]
fn who_is_unblocked_holds_up_no_share() {
    on_every_kind(|stage, alice, bob| {
        let carol = stage.0.connect();
        assert_eq!(stage.run(alice, "LOCK.SHARE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        assert_eq!(stage.run(carol, "LOCK.SHARE door carol BLOCK 0"), []);
        let mut replies = stage.run(alice, &format!("CLIENT UNBLOCK {bob}"));
        replies.sort_by_key(|(client, _)| *client);
        assert_eq!(replies, [received(alice, 1), vec![(bob, Reply::Nil)], received(carol, 1)].concat());
    });
}

/// The lock is free when the shares that are left have ended, however long the one would have lasted that has gone.
#[test]
fn a_share_that_goes_with_its_connection_brings_the_end_forward() {
    on_every_kind(|stage, alice, bob| {
        let carol = stage.0.connect();
        assert_eq!(stage.run(alice, "LOCK.SHARE door alice PX 1000 SESSION"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.SHARE door bob PX 500"), received(bob, 1));
        assert_eq!(stage.run(carol, "LOCK.ACQUIRE door carol BLOCK 0"), []);
        stage.0.hang_up(alice);
        assert_eq!(stage.pass(500), []);
        assert_eq!(stage.pass(1), received(carol, 1));
    });
}

/// A share whose lease has ended in a pause is given back, also if another one is taken back first.
#[test]
fn a_share_that_goes_takes_no_lapsed_one_along() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.SHARE door alice PX 100 SESSION"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.SHARE door bob PX 300 SESSION"), received(bob, 1));
        stage.run(bob, "CLIENT PAUSE 120 WRITE");
        stage.0.hang_up(bob);
        stage.pass(200);
        assert_eq!(stage.run(alice, "LOCK.EXTEND door alice PX 100"), received(alice, 100));
    });
}

#[test]
fn each_node_has_a_state_of_its_own() {
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
fn settings_are_set_within_their_range() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "CONFIG SET lock.max-waiters 0"), [(alice, Reply::OK)]);
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        let replies = stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0");
        let [(client, Reply::Error(refused))] = &replies[..] else { panic!("an error: {replies:?}") };
        assert_eq!(*client, bob);
        assert!(refused.starts_with("QUEUEFULL"), "{refused}");
        let replies = stage.run(alice, "CONFIG SET lock.max-waiters -1");
        assert!(matches!(&replies[..], [(_, Reply::Error(_))]), "{replies:?}");
    });
}

#[test]
fn a_lease_is_not_renewed_for_a_connection_that_is_closed() {
    on_every_kind(|stage, alice, _| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 100 SESSION"), received(alice, 1));
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE gate alice PX 270 SESSION"), received(alice, 1));
        stage.stream();
        stage.0.hang_up(alice);
        // Both leases are due to be renewed in the round in which the connection closes.
        Node::pass_us(95_000);
        stage.turn();
        let mut stream = stage.stream();
        stream.sort();
        assert_eq!(stream, ["DEL door", "DEL gate"]);
    });
}

#[test]
fn in_a_pause_a_kept_place_goes_in_time_and_then_the_timer_rests() {
    on_every_kind(|stage, alice, bob| {
        stage.run(alice, "CONFIG SET lock.rejoin-grace-ms 500");
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
        stage.run(alice, "CLIENT PAUSE 100000 WRITE");
        stage.0.hang_up(bob);
        stage.pass(500);
        assert!(stage.left() > 0, "his place");
        stage.pass(1);
        assert_eq!(stage.left(), 0);
        stage.pass(100);
        assert_eq!(stage.0.next_wake(), None);
    });
}

/// Stands still for a second, after which a write of the module's own ends the simulated server until it has noticed that its
/// replicas are gone.
fn stall_while_replicas_are_missing(stage: &Stage) {
    Node::pass_us(1_000_000);
    stage.0.change_unnoticed(Unnoticed::NoReplicas);
}

#[test]
fn the_loop_is_watched_on_after_a_stall_that_has_ended_all_waits() {
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
fn a_grant_on_its_way_is_reason_to_watch_the_loop() {
    let stage = Stage::on(ServerKind::Redis8);
    let [alice, bob, carol] = [(); 3].map(|()| stage.0.connect());
    assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
    assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob BLOCK 0"), []);
    stage.send(bob, "LOCK.RELEASE door bob");
    assert_eq!(stage.run(carol, "LOCK.ACQUIRE door carol BLOCK 0"), []);
    // Bob is answered at the end of the round, and what he sent then hands the lock to Carol, who is answered in the next.
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
fn a_share_that_is_handed_over_ends_before_2_53_and_a_mutex_when_it_is_to() {
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
fn a_lock_that_a_copy_asks_for_without_a_lease_is_granted_without_one() {
    on_every_kind(|stage, alice, bob| {
        let carol = stage.0.connect();
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door copies PX 500 BLOCK 0"), []);
        assert_eq!(stage.run(carol, "LOCK.ACQUIRE door copies BLOCK 0"), []);
        stage.stream();
        assert_eq!(stage.run(alice, "LOCK.RELEASE door alice").len(), 3);
        assert_eq!(stage.stream(), ["SET door copies"]);
    });
}
