//! What those are told who wait for a message.

use redis_lock::server::{ClientId, LoggedEvent, Reply};

use super::clients::{Stage, on_every_kind, received};

/// Has a client listen to these channels.
fn listen(stage: &Stage, client: ClientId, channels: &[&str]) {
    stage.send(client, "HELLO 3");
    channels.iter().for_each(|channel| stage.send(client, &format!("SSUBSCRIBE {channel}")));
    stage.turn();
}

/// Lets time pass, and returns the messages that are published meanwhile.
fn published(stage: &Stage, ms: i64) -> Vec<String> {
    let message = |note| match note {
        LoggedEvent::Published { message, .. } => Some(String::from_utf8_lossy(&message).into_owned()),
        _ => None,
    };
    stage.notes(ms).into_iter().filter_map(message).collect()
}

fn waiting(client: ClientId) -> Vec<(ClientId, Reply)> {
    vec![(client, Reply::Status("WAITING"))]
}

#[track_caller]
fn assert_full(replies: &[(ClientId, Reply)]) {
    let [(_, Reply::Error(refused))] = replies else { panic!("an error: {replies:?}") };
    assert!(refused.starts_with("SESSIONFULL"), "{refused}");
}

/// Has a client wait for a message and a session, of which there may be no other.
#[track_caller]
fn wait_for_the_only_session(stage: &Stage, holder: ClientId, waiter: ClientId, ask: &str) {
    listen(stage, waiter, &["news", "olds"]);
    assert_eq!(stage.run(holder, "LOCK.ACQUIRE door alice"), received(holder, 1));
    assert_eq!(stage.run(holder, "CONFIG SET lock.max-sessions 1"), [(holder, Reply::OK)]);
    assert_eq!(stage.run(waiter, &format!("{ask} NOTIFY news SESSION")), waiting(waiter));
}

#[test]
fn a_repeat_of_who_waits_for_a_session_is_no_session_more() {
    on_every_kind(|stage, alice, bob| {
        let (carol, ask) = (stage.0.connect(), "LOCK.ACQUIRE door bob PX 500 BLOCK 0");
        wait_for_the_only_session(&stage, alice, bob, ask);
        for (client, channel) in [(bob, "news"), (bob, "olds"), (carol, "news")] {
            assert_eq!(stage.run(client, &format!("{ask} NOTIFY {channel} SESSION")), waiting(client), "on {channel}");
        }
    });
}

#[test]
fn who_is_not_the_same_waits_for_a_session_more() {
    on_every_kind(|stage, alice, bob| {
        let (carol, ask) = (stage.0.connect(), "LOCK.ACQUIRE door bob PX 500 BLOCK 0");
        wait_for_the_only_session(&stage, alice, bob, ask);
        assert_full(&stage.run(carol, &format!("{ask} NOTIFY olds SESSION")));
        assert_full(&stage.run(carol, &format!("{ask} SESSION")));
        let other = "LOCK.ACQUIRE door other PX 500 BLOCK 0 NOTIFY news";
        assert_full(&stage.run(carol, &format!("{other} SESSION")));
        assert_eq!(stage.run(carol, other), waiting(carol));
        assert_full(&stage.run(carol, &format!("{other} SESSION")));
    });
}

/// Whether the slot has left is not known then. Afterwards the lock is granted.
#[test]
fn nobody_is_lost_while_the_cluster_is_down() {
    on_every_kind(|stage, alice, bob| {
        stage.0.join_cluster();
        listen(&stage, bob, &["news"]);
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 100"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 5000 BLOCK 0 NOTIFY news"), waiting(bob));
        stage.0.set_cluster_down(true);
        assert_eq!(published(&stage, 1000), [""; 0]);
        stage.0.set_cluster_down(false);
        let granted = published(&stage, 100);
        assert!(matches!(&granted[..], [message] if message.starts_with("granted ")), "{granted:?}");
    });
}

#[test]
fn where_nobody_hears_of_the_end_of_a_lease_those_who_wait_by_other_means_are_woken() {
    on_every_kind(|stage, alice, bob| {
        for (wakes, is_deleted, is_woken) in [(0, false, 0), (1, true, 0), (1, false, 1)] {
            let listener = stage.0.connect();
            listen(&stage, listener, &["news"]);
            assert_eq!(stage.run(alice, &format!("CONFIG SET lock.wake-foreign {wakes}")), [(alice, Reply::OK)]);
            assert_eq!(stage.run(alice, "LOCK.ACQUIRE lock:door alice PX 100"), received(alice, 1));
            assert_eq!(stage.run(bob, "LOCK.ACQUIRE lock:door bob PX 500 BLOCK 0 NOTIFY news"), waiting(bob));
            stage.0.hang_up(listener);
            if is_deleted {
                assert_eq!(stage.run(alice, "DEL lock:door"), received(alice, 1));
            }
            stage.pass(101);
            assert_eq!(stage.run(alice, "EXISTS lock:door"), received(alice, 0), "nobody has heard");
            assert_eq!(stage.run(alice, "EXISTS lock-signal:door"), received(alice, is_woken), "{wakes} {is_deleted}");
        }
    });
}

#[test]
fn who_waits_on_a_master_that_becomes_a_replica_is_lost() {
    on_every_kind(|stage, alice, bob| {
        listen(&stage, bob, &["news"]);
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 500 BLOCK 0 NOTIFY news"), waiting(bob));
        stage.0.become_replica();
        assert_eq!(published(&stage, 1000), ["lost 0 0 bob door"]);
        assert_eq!(stage.left(), 0);
    });
}

/// Also where no message may be published in it.
#[test]
fn what_a_transaction_frees_is_granted_behind_it() {
    on_every_kind(|stage, alice, bob| {
        listen(&stage, bob, &["news"]);
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 500 BLOCK 0 NOTIFY news"), waiting(bob));
        ["MULTI", "LOCK.RELEASE door alice", "EXEC"].into_iter().for_each(|line| stage.send(alice, line));
        assert_eq!(published(&stage, 1).len(), 1);
        assert_eq!(stage.run(alice, "GET door"), [(alice, Reply::Bytes(b"bob".to_vec()))]);
    });
}
