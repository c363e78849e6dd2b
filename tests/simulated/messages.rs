//! Messages to waiters, and the sessions that they wait for.

use redis_lock::server::{ClientId, LoggedEvent, Reply};

use super::clients::{Stage, on_every_kind, received};

/// Subscribes a client to these channels.
fn listen(stage: &Stage, client: ClientId, channels: &[&str]) {
    stage.send(client, "HELLO 3");
    channels.iter().for_each(|channel| stage.send(client, &format!("SSUBSCRIBE {channel}")));
    stage.turn();
}

/// Lets time pass, and returns the messages that are published in that time.
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

/// Lets a client wait for a message and a session. No other session fits under the limit.
#[track_caller]
fn wait_for_only_session(stage: &Stage, holder: ClientId, waiter: ClientId, ask: &str) {
    listen(stage, waiter, &["news", "olds"]);
    assert_eq!(stage.run(holder, "LOCK.ACQUIRE door alice"), received(holder, 1));
    assert_eq!(stage.run(holder, "CONFIG SET lock.max-sessions 1"), [(holder, Reply::OK)]);
    assert_eq!(stage.run(waiter, &format!("{ask} NOTIFY news SESSION")), waiting(waiter));
}

#[test]
fn repeated_request_needs_no_second_session() {
    on_every_kind(|stage, alice, bob| {
        let (carol, ask) = (stage.0.connect(), "LOCK.ACQUIRE door bob PX 500 BLOCK 0");
        wait_for_only_session(&stage, alice, bob, ask);
        for (client, channel) in [(bob, "news"), (bob, "olds"), (carol, "news")] {
            assert_eq!(stage.run(client, &format!("{ask} NOTIFY {channel} SESSION")), waiting(client), "on {channel}");
        }
    });
}

#[test]
fn different_request_needs_another_session() {
    on_every_kind(|stage, alice, bob| {
        let (carol, ask) = (stage.0.connect(), "LOCK.ACQUIRE door bob PX 500 BLOCK 0");
        wait_for_only_session(&stage, alice, bob, ask);
        assert_full(&stage.run(carol, &format!("{ask} NOTIFY olds SESSION")));
        assert_full(&stage.run(carol, &format!("{ask} SESSION")));
        let other = "LOCK.ACQUIRE door other PX 500 BLOCK 0 NOTIFY news";
        assert_full(&stage.run(carol, &format!("{other} SESSION")));
        assert_eq!(stage.run(carol, other), waiting(carol));
        assert_full(&stage.run(carol, &format!("{other} SESSION")));
    });
}

/// While the cluster is down, the owner of the slot is unknown. After that the lock is granted.
#[test]
fn cluster_that_is_down_aborts_no_wait() {
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
fn lease_end_without_subscriber_wakes_compat_clients() {
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
            assert_eq!(stage.run(alice, "EXISTS lock:door"), received(alice, 0), "no subscriber");
            assert_eq!(stage.run(alice, "EXISTS lock-signal:door"), received(alice, is_woken), "{wakes} {is_deleted}");
        }
    });
}

#[test]
fn demotion_aborts_waits_for_messages() {
    on_every_kind(|stage, alice, bob| {
        listen(&stage, bob, &["news"]);
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 500 BLOCK 0 NOTIFY news"), waiting(bob));
        stage.0.become_replica();
        assert_eq!(published(&stage, 1000), ["lost 0 0 bob door"]);
        assert_eq!(stage.left(), 0);
    });
}

/// On some servers no message may be published in the transaction.
#[test]
fn lock_freed_in_transaction_is_granted_after_it() {
    on_every_kind(|stage, alice, bob| {
        listen(&stage, bob, &["news"]);
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 500 BLOCK 0 NOTIFY news"), waiting(bob));
        ["MULTI", "LOCK.RELEASE door alice", "EXEC"].into_iter().for_each(|line| stage.send(alice, line));
        assert_eq!(published(&stage, 1).len(), 1);
        assert_eq!(stage.run(alice, "GET door"), [(alice, Reply::Bytes(b"bob".to_vec()))]);
    });
}
