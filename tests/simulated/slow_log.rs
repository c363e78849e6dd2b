//! The ends of waits in LOCK.SLOWLOG, on every kind of server.

use redis_lock::server::{ClientId, Node, Reply, ServerKind};

use super::clients::{Stage, on_every_kind, received};

/// Returns the tokens, waits, ends and numbers of other requests in the log, the first first.
#[track_caller]
fn logged(stage: &Stage, client: ClientId) -> Vec<(String, i64, String, i64)> {
    let replies = stage.run(client, "LOCK.SLOWLOG GET -1");
    let [(_, Reply::Array(entries))] = &replies[..] else { panic!("a list: {replies:?}") };
    entries.iter().rev().map(fields).collect()
}

#[track_caller]
fn fields(entry: &Reply) -> (String, i64, String, i64) {
    let Reply::Array(fields) = entry else { panic!("an entry: {entry:?}") };
    match &fields[..] {
        [.., Reply::Integer(waited_ms), _, _, Reply::Bytes(token), _, Reply::Bytes(end), Reply::Integer(others)] => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(token), *waited_ms, text(end), *others)
        }
        fields => panic!("nine fields: {fields:?}"),
    }
}

fn entry(token: &str, waited_ms: i64, end: &str, others: i64) -> (String, i64, String, i64) {
    (token.to_owned(), waited_ms, end.to_owned(), others)
}

/// Alice holds the lock, and every wait is logged. Bob waits, with the options `rest`.
#[track_caller]
fn begin(stage: &Stage, alice: ClientId, bob: ClientId, rest: &str) {
    stage.run(alice, "CONFIG SET lock.slowlog-ms 0");
    assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 1000"), received(alice, 1));
    if rest.contains("NOTIFY") {
        // Valkey blocks no client that is subscribed to a channel.
        stage.run(bob, "HELLO 3");
        stage.run(bob, "SSUBSCRIBE news");
    }
    stage.run(bob, &format!("LOCK.ACQUIRE door bob PX 1000 {rest}"));
}

/// A blocked request, and one that waits for a message.
const WAYS: [&str; 2] = ["BLOCK 0", "BLOCK 0 NOTIFY news"];

#[test]
fn lease_end_logs_granted() {
    on_every_kind(|stage, alice, bob| {
        for way in WAYS {
            begin(&stage, alice, bob, way);
            stage.pass(1001);
            assert_eq!(logged(&stage, alice), [entry("bob", 1001, "granted", 0)], "{way}");
            stage.run(alice, "LOCK.RELEASE door bob");
            stage.run(alice, "LOCK.SLOWLOG RESET");
        }
    });
}

#[test]
fn time_out_logs_timeout() {
    on_every_kind(|stage, alice, bob| {
        for way in ["BLOCK 200", "BLOCK 200 NOTIFY news"] {
            begin(&stage, alice, bob, way);
            stage.pass(201);
            assert_eq!(logged(&stage, alice), [entry("bob", 201, "timeout", 0)], "{way}");
            stage.run(alice, "LOCK.SLOWLOG RESET");
        }
    });
}

#[test]
fn release_of_waiter_logs_withdrawn() {
    on_every_kind(|stage, alice, bob| {
        for way in WAYS {
            begin(&stage, alice, bob, way);
            stage.pass(20);
            stage.run(alice, "LOCK.RELEASE door bob");
            assert_eq!(logged(&stage, alice), [entry("bob", 20, "withdrawn", 0)], "{way}");
            stage.run(alice, "LOCK.SLOWLOG RESET");
        }
    });
}

#[test]
fn demotion_logs_lost_for_messages_alone() {
    for (way, end) in WAYS.into_iter().zip(["disconnected", "lost"]) {
        on_every_kind(|stage, alice, bob| {
            begin(&stage, alice, bob, way);
            stage.0.become_replica();
            stage.turn();
            assert_eq!(logged(&stage, alice), [entry("bob", 0, end, 0)], "{way}");
        });
    }
}

#[test]
fn closed_connection_logs_disconnected() {
    for way in WAYS {
        on_every_kind(|stage, alice, bob| {
            begin(&stage, alice, bob, way);
            stage.pass(7);
            stage.0.hang_up(bob);
            stage.turn();
            assert_eq!(logged(&stage, alice), [entry("bob", 7, "disconnected", 0)], "{way}");
        });
    }
}

#[test]
fn unblocked_client_logs_disconnected() {
    for how in ["TIMEOUT", "ERROR"] {
        on_every_kind(|stage, alice, bob| {
            begin(&stage, alice, bob, "BLOCK 0");
            stage.run(alice, &format!("CLIENT UNBLOCK {bob} {how}"));
            assert_eq!(logged(&stage, alice), [entry("bob", 0, "disconnected", 0)], "{how}");
        });
    }
}

#[test]
fn message_without_subscriber_logs_disconnected() {
    on_every_kind(|stage, alice, bob| {
        begin(&stage, alice, bob, "BLOCK 0 NOTIFY news");
        let carol = stage.0.connect();
        stage.run(carol, "LOCK.ACQUIRE door carol PX 1000 BLOCK 0");
        stage.run(bob, "SUNSUBSCRIBE news");
        stage.run(alice, "LOCK.RELEASE door alice");
        assert_eq!(logged(&stage, alice), [entry("bob", 0, "disconnected", 1), entry("carol", 0, "granted", 0)]);
    });
}

#[test]
fn replaced_request_logs_disconnected() {
    on_every_kind(|stage, alice, bob| {
        begin(&stage, alice, bob, "BLOCK 0 NOTIFY news");
        stage.pass(5);
        stage.run(bob, "LOCK.ACQUIRE door bob PX 1000 BLOCK 0 NOTIFY news");
        assert_eq!(logged(&stage, alice), [entry("bob", 5, "disconnected", 1)], "the repeat waits");
        stage.pass(5);
        stage.run(alice, "LOCK.RELEASE door alice");
        let expected = [entry("bob", 5, "disconnected", 1), entry("bob", 5, "granted", 0)];
        assert_eq!(logged(&stage, alice), expected, "each counts from its own request");
    });
}

#[test]
fn clock_set_back_logs_no_negative_wait() {
    let stage = Stage::on(ServerKind::Redis8);
    let (alice, bob) = (stage.0.connect(), stage.0.connect());
    begin(&stage, alice, bob, "BLOCK 0");
    stage.0.step_clock(-500);
    stage.run(alice, "LOCK.RELEASE door alice");
    assert_eq!(logged(&stage, alice), [entry("bob", 0, "granted", 0)]);
}

#[test]
fn restarted_server_has_empty_log() {
    let stage = Stage::on(ServerKind::Redis8);
    let (alice, bob) = (stage.0.connect(), stage.0.connect());
    begin(&stage, alice, bob, "BLOCK 0");
    stage.run(alice, "LOCK.RELEASE door alice");
    assert_eq!(logged(&stage, alice).len(), 1);
    stage.0.restart(stage.0.keyspace());
    Node::pass_us(1000);
    let carol = stage.0.connect();
    assert_eq!(logged(&stage, carol), []);
}
