//! Copies of one request with different options. A copy that does not wait any more does not count.

use redis_lock::server::{LoggedEvent, Reply};

use super::clients::{Stage, on_every_kind, received};

/// Subscribes a new client to a channel.
fn listen(stage: &Stage, channel: &str) -> i64 {
    let client = stage.0.connect();
    stage.send(client, "HELLO 3");
    stage.send(client, &format!("SSUBSCRIBE {channel}"));
    stage.turn();
    client
}

/// Returns the time until the lock expires, in milliseconds.
fn lease_ms(stage: &Stage) -> Option<i64> {
    let keyspace = stage.0.keyspace();
    let entry = keyspace.get(0, b"door").expect("the lock is held");
    entry.expiry.map(|end| end - stage.0.now_ms())
}

/// Two of five shares are held. The copy with LIMIT 1 is withdrawn, so the other copy has capacity.
#[test]
fn limit_of_a_copy_that_left_counts_no_more() {
    for leaves in ["times out", "disconnects", "is unblocked"] {
        on_every_kind(|stage, holder, small| {
            let large = stage.0.connect();
            for name in ["one", "two"] {
                assert_eq!(stage.run(holder, &format!("LOCK.SHARE door {name}")), received(holder, 1));
            }
            assert_eq!(stage.run(small, "LOCK.SHARE door token LIMIT 1 BLOCK 200"), []);
            assert_eq!(stage.run(large, "LOCK.SHARE door token LIMIT 5 BLOCK 1500"), []);
            let replies = match leaves {
                "times out" => [stage.pass(200), stage.pass(1)].concat(),
                "disconnects" => {
                    stage.0.hang_up(small);
                    stage.turn()
                }
                _ => stage.run(holder, &format!("CLIENT UNBLOCK {small}")),
            };
            assert!(replies.contains(&(large, Reply::Integer(1))), "{leaves}: {replies:?}");
        });
    }
}

#[test]
fn lease_of_a_copy_that_left_counts_no_more() {
    for (gone, stays, expected) in
        [("", "PX 1000", Some(1000)), ("PX 9000", "PX 1000", Some(1000)), ("PX 1000 SESSION", "", None)]
    {
        on_every_kind(|stage, alice, bob| {
            let carol = stage.0.connect();
            assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
            assert_eq!(stage.run(bob, &format!("LOCK.ACQUIRE door token {gone} BLOCK 50")), []);
            assert_eq!(stage.run(carol, &format!("LOCK.ACQUIRE door token {stays} BLOCK 0")), []);
            assert_eq!(stage.pass(51), [(bob, Reply::Nil)]);
            stage.run(alice, "LOCK.RELEASE door alice");
            assert_eq!(lease_ms(&stage), expected, "{gone} left and {stays} stays");
        });
    }
}

#[test]
fn repeat_by_message_brings_its_own_limit() {
    on_every_kind(|stage, holder, bob| {
        let listener = listen(&stage, "news");
        for name in ["one", "two"] {
            assert_eq!(stage.run(holder, &format!("LOCK.SHARE door {name}")), received(holder, 1));
        }
        let ask = |limit| format!("LOCK.SHARE door token PX 1000 LIMIT {limit} BLOCK 500 NOTIFY news");
        assert_eq!(stage.run(bob, &ask(1)), [(bob, Reply::Status("WAITING"))]);
        stage.send(bob, &ask(5));
        let is_message = |note: LoggedEvent| match note {
            LoggedEvent::Published { message, .. } => Some(String::from_utf8_lossy(&message).into_owned()),
            _ => None,
        };
        let messages: Vec<_> = stage.notes(1).into_iter().filter_map(is_message).collect();
        assert!(matches!(&messages[..], [message] if message.starts_with("granted ")), "{messages:?}");
        stage.0.hang_up(listener);
    });
}

/// The longer lease is that of a copy whose channel has lost its subscriber.
#[test]
fn unheard_copy_adds_nothing_to_the_lease() {
    for (gone, stays) in [("first", "second"), ("second", "first")] {
        on_every_kind(|stage, alice, bob| {
            let listeners = [stays, gone].map(|channel| listen(&stage, channel));
            assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
            for channel in ["first", "second"] {
                let ms = if channel == gone { 9000 } else { 1000 };
                let ask = format!("LOCK.ACQUIRE door token PX {ms} BLOCK 0 NOTIFY {channel}");
                assert_eq!(stage.run(bob, &ask), [(bob, Reply::Status("WAITING"))]);
            }
            stage.0.hang_up(listeners[1]);
            stage.turn();
            stage.send(alice, "LOCK.RELEASE door alice");
            let granted_end = format!("granted {} 0 token door", stage.0.now_ms() + 1001);
            let is_expected = |note: &LoggedEvent| match note {
                LoggedEvent::Published { message, reached, .. } => {
                    *reached == 1 && **message == *granted_end.as_bytes()
                }
                _ => false,
            };
            let notes = stage.notes(1);
            assert!(notes.iter().any(is_expected), "{notes:?}");
            assert_eq!(lease_ms(&stage), Some(1000));
        });
    }
}

/// The repeated request inherits the session of the request that it replaces, and the lease of that session.
#[test]
fn repeat_without_session_keeps_its_lease() {
    on_every_kind(|stage, alice, bob| {
        let listener = listen(&stage, "news");
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        for options in ["PX 600 SESSION", "PX 30"] {
            let ask = format!("LOCK.ACQUIRE door token {options} BLOCK 0 NOTIFY news");
            assert_eq!(stage.run(bob, &ask), [(bob, Reply::Status("WAITING"))]);
        }
        stage.run(alice, "LOCK.RELEASE door alice");
        assert_eq!(lease_ms(&stage), Some(600));
        stage.0.hang_up(listener);
    });
}
