//! The ends of waits in LOCK.SLOWLOG: each has one entry with its name.

use support::listener::Listener;
use support::{Client, LOST, Reply, Server, Setup, Waiter, Waiting, Way, eventually, info_lock, waiters_of};

use super::slowlog_entry::{entries, logs_every_wait};

/// Returns the tokens and ends of all entries, the first first, when there are this many.
#[track_caller]
fn ends(client: &mut Client, expected: i64) -> Vec<(String, String)> {
    eventually("the entries are there", || client.run("LOCK.SLOWLOG LEN") == expected);
    let ends = entries(client, "-1").into_iter().rev();
    ends.map(|entry| (String::from_utf8(entry.token).expect("a text"), entry.end)).collect()
}

fn end(token: &str, end: &str) -> (String, String) {
    (token.to_owned(), end.to_owned())
}

/// Bob waits for alice's lock in this way. Returns the one entry of that, after `act`.
#[track_caller]
fn end_of_wait(way: Way, line: &str, act: impl FnOnce(&Server, &mut Client, Waiting)) -> String {
    let server = logs_every_wait();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let bob = way.send(&server, line);
    act(&server, &mut alice, bob);
    let ends = ends(&mut server.client(), 1);
    assert_eq!(ends[0].0, "bob", "{way:?}");
    ends[0].1.clone()
}

#[test]
fn granted_wait_is_logged() {
    for (way, free) in Way::ALL
        .into_iter()
        .flat_map(|way| ["LOCK.RELEASE door alice", "DEL door", "PEXPIRE door 10"].map(|line| (way, line)))
    {
        let end = end_of_wait(way, "LOCK.ACQUIRE door bob BLOCK 0", |_, alice, mut bob| {
            eventually("bob waits", || waiters_of(alice, "door") == 1);
            alice.run(free);
            assert_eq!(bob.reply(), 1);
        });
        assert_eq!(end, "granted", "{way:?}: {free}");
    }
}

#[test]
fn timed_out_wait_is_logged() {
    for way in Way::ALL {
        let end = end_of_wait(way, "LOCK.ACQUIRE door bob BLOCK 20", |_, _, mut bob| {
            assert_eq!(bob.reply(), Reply::Nil);
        });
        assert_eq!(end, "timeout", "{way:?}");
    }
}

#[test]
fn withdrawn_wait_is_logged() {
    for way in Way::ALL {
        let end = end_of_wait(way, "LOCK.ACQUIRE door bob BLOCK 0", |_, alice, mut bob| {
            eventually("bob waits", || waiters_of(alice, "door") == 1);
            assert_eq!(alice.run("LOCK.RELEASE door bob"), Reply::Nil);
            assert_eq!(bob.reply(), Reply::Nil);
        });
        assert_eq!(end, "withdrawn", "{way:?}");
    }
}

#[test]
fn grant_in_other_form_withdraws_and_logs() {
    let server = logs_every_wait();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let _waiters =
        ["LOCK.ACQUIRE", "LOCK.SHARE"].map(|take| Waiter::start(&server, &format!("{take} door bob BLOCK 0")));
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    let logged: Vec<_> =
        entries(&mut alice, "").into_iter().rev().map(|entry| (entry.kind, entry.end, entry.others)).collect();
    let entry = |kind: &str, end: &str, others| (kind.to_owned(), end.to_owned(), others);
    assert_eq!(logged, [entry("mutex", "granted", 1), entry("shared", "withdrawn", 0)]);
}

#[test]
fn closed_connection_ends_wait_as_disconnected() {
    for way in Way::ALL {
        let end = end_of_wait(way, "LOCK.ACQUIRE door bob BLOCK 0", |server, alice, bob| {
            eventually("bob waits", || waiters_of(alice, "door") == 1);
            bob.hang_up(&mut server.client());
        });
        assert_eq!(end, "disconnected", "{way:?}");
    }
}

#[test]
fn client_unblock_ends_wait_as_disconnected() {
    for how in ["TIMEOUT", "ERROR"] {
        let end = end_of_wait(Way::Blocked, "LOCK.ACQUIRE door bob BLOCK 0", |server, alice, mut bob| {
            eventually("bob waits", || waiters_of(alice, "door") == 1);
            assert_eq!(server.client().run(&format!("CLIENT UNBLOCK {} {how}", bob.id())), 1);
            assert_eq!(bob.reply().is_error(), how == "ERROR");
        });
        assert_eq!(end, "disconnected", "{how}");
    }
}

#[test]
fn lost_role_ends_messages_as_lost_and_others_not() {
    for (way, expected) in [(Way::Blocked, "disconnected"), (Way::Notified, "lost"), (Way::OnOneConnection, "lost")] {
        let end = end_of_wait(way, "LOCK.ACQUIRE door bob BLOCK 0", |_, alice, mut bob| {
            eventually("bob waits", || waiters_of(alice, "door") == 1);
            alice.ok("REPLICAOF 127.0.0.1 1");
            if way != Way::Blocked {
                assert_eq!(bob.reply().code(), LOST);
            }
        });
        assert_eq!(end, expected, "{way:?}");
    }
}

#[test]
fn message_without_subscriber_ends_as_disconnected() {
    let server = logs_every_wait();
    let (mut alice, mut bob) = (server.client(), server.client());
    let listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    drop(listener);
    eventually("the listener is gone", || alice.run("PUBSUB SHARDNUMSUB news").items()[1] == 0);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(ends(&mut alice, 1), [end("bob", "disconnected")]);
}

#[test]
fn replaced_request_ends_as_disconnected() {
    let server = logs_every_wait();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    for _ in 0..2 {
        assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    }
    assert_eq!(ends(&mut alice, 1), [end("bob", "disconnected")]);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "bob", "door");
    assert_eq!(ends(&mut alice, 2), [end("bob", "disconnected"), end("bob", "granted")]);
}

#[test]
fn others_are_the_requests_behind() {
    let server = logs_every_wait();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let _waiters =
        ["a", "b", "c"].map(|token| Way::Notified.start(&server, &format!("LOCK.SHARE door {token} BLOCK 0")));
    let _last = Waiter::start(&server, "LOCK.ACQUIRE door d BLOCK 0");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    let others: Vec<_> = entries(&mut alice, "").into_iter().rev().map(|entry| entry.others).collect();
    assert_eq!(others, [3, 2, 1], "shares that are granted together count those behind them");
    assert_eq!(waiters_of(&mut alice, "door"), 1);
}

#[test]
fn panic_logs_each_wait_once() {
    let server = Setup::new().config("lock.slowlog-ms 0").with_failpoints().allow_bugs().start();
    let mut admin = server.client();
    assert_eq!(admin.run("LOCK.ACQUIRE door alice"), 1);
    let mut waiting = Way::ALL.map(|way| way.start(&server, &format!("LOCK.ACQUIRE door {way:?} BLOCK 0")));
    assert_eq!(admin.call(&["FAILPOINT", "lock.info", "0"]), 1);
    assert!(admin.run("LOCK.INFO door").is_error());
    for waiter in &mut waiting {
        assert!(waiter.reply().is_error());
    }
    let expected = [end("Blocked", "disconnected"), end("Notified", "lost"), end("OnOneConnection", "lost")];
    assert_eq!(ends(&mut admin, 3), expected);
    drop(waiting);
    eventually("all have left", || info_lock(&mut admin, "waiters") == 0);
    assert_eq!(admin.run("LOCK.SLOWLOG LEN"), 3);
}
