//! What a request with NOTIFY is answered, and what it is refused.

use support::listener::Listener;
use support::{Client, Protocol, Reply, Server, Setup, field, waiters_of};

/// How the mutex and the re-entrant lock are taken.
const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

#[test]
fn a_lock_that_is_free_is_granted_at_once_and_nobody_need_listen() {
    let server = Server::start();
    let mut alice = server.client();
    for take in TAKE {
        assert_eq!(alice.run(&format!("{take} {take} alice PX 30000 BLOCK 0 NOTIFY news")), 1);
        assert_eq!(field(&mut alice, take, "owner"), "alice");
    }
}

#[test]
fn one_who_has_to_wait_is_told_so_and_goes_on_with_other_work() {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let server = Server::start();
        let (mut alice, mut bob) = (server.client(), Client::connect(server.port(), protocol).unwrap());
        let _listener = Listener::start(&server, "news");
        for take in TAKE {
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE {take} alice")), 1);
            let reply = bob.run(&format!("{take} {take} bob PX 30000 BLOCK 0 NOTIFY news"));
            assert_eq!(reply, Reply::waiting());
            assert_eq!(bob.run("PING"), Reply::Status("PONG".to_owned()));
            assert_eq!(waiters_of(&mut alice, take), 1);
        }
    }
}

#[test]
fn without_a_listener_nothing_waits() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let _elsewhere = Listener::start(&server, "other");
    for take in TAKE {
        let reply = bob.run(&format!("{take} door bob PX 30000 BLOCK 0 NOTIFY news"));
        assert_eq!(reply.code(), "NOSUBSCRIBER");
    }
    assert_eq!(waiters_of(&mut alice, "door"), 0);
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let _listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let long = "c".repeat(1025);
    for (options, error) in [
        ("PX 1000 NOTIFY news", "ERR NOTIFY needs BLOCK and a lease, EX or PX"),
        ("BLOCK 0 NOTIFY news", "ERR NOTIFY needs BLOCK and a lease, EX or PX"),
        ("PX 1000 BLOCK 0 NOTIFY", "ERR syntax error"),
        ("PX 1000 BLOCK 0 NOTIFY news NOTIFY news", "ERR syntax error"),
        (&format!("PX 1000 BLOCK 0 NOTIFY {long}"), "ERR a channel must be 1 to 1024 bytes long"),
    ] {
        for take in TAKE {
            assert_eq!(bob.run(&format!("{take} door bob {options}")), Reply::Error(error.to_owned()), "{options}");
        }
    }
    let spaced: [&[u8]; 9] = [b"LOCK.ACQUIRE", b"door", b"b b", b"PX", b"1000", b"BLOCK", b"0", b"NOTIFY", b"news"];
    assert_eq!(bob.call(&spaced), Reply::Error("ERR with NOTIFY a token must have no space".to_owned()));
    let mut empty = spaced;
    (empty[2], empty[8]) = (b"b", b"");
    assert_eq!(bob.call(&empty), Reply::Error("ERR a channel must be 1 to 1024 bytes long".to_owned()));
    assert_eq!(bob.run("LOCK.RELEASE door bob NOTIFY news"), Reply::Error("ERR syntax error".to_owned()));
    assert_eq!(waiters_of(&mut alice, "door"), 0);
}

#[test]
fn in_scripts_it_is_refused_and_in_transactions_it_waits() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 'PX', '1000', 'BLOCK', '0', 'NOTIFY', 'news')";
    let reply = bob.call(&["EVAL", script, "1", "door"]);
    assert_eq!(reply.code(), "ERR", "{reply:?}");
    bob.ok("MULTI");
    bob.run("LOCK.ACQUIRE door bob PX 30000 BLOCK 0 NOTIFY news");
    assert_eq!(bob.run("EXEC"), Reply::List(vec![Reply::waiting()]));
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "bob", "door");
}

#[test]
fn as_many_wait_as_the_setting_allows_blocked_or_not() {
    let server = Setup::new().config("lock.max-waiters 2").start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let _listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut ask = |token: &str| bob.run(&format!("LOCK.ACQUIRE door {token} PX 30000 BLOCK 0 NOTIFY news"));
    assert_eq!(ask("one"), Reply::waiting());
    assert_eq!(ask("two"), Reply::waiting());
    assert_eq!(ask("three").code(), "QUEUEFULL");
    assert_eq!(ask("one"), Reply::waiting(), "in the place of the earlier request");
    assert_eq!(waiters_of(&mut alice, "door"), 2);
    assert_eq!(alice.run("LOCK.ACQUIRE door four BLOCK 10").code(), "QUEUEFULL");
}

#[test]
fn the_right_to_the_channel_is_asked_for() {
    let server = Server::start();
    let mut alice = server.client();
    let _listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    alice.ok("ACL SETUSER guest on nopass ~* +@all resetchannels &mine");
    let mut guest = server.client();
    guest.ok("AUTH guest any");
    let reply = guest.run("LOCK.ACQUIRE door guest PX 1000 BLOCK 0 NOTIFY news");
    assert_eq!(reply.code(), "NOPERM", "{reply:?}");
    let reply = guest.run("LOCK.ACQUIRE door guest PX 1000 BLOCK 0 NOTIFY mine");
    assert_eq!(reply.code(), "NOSUBSCRIBER", "{reply:?}");
    assert_eq!(guest.run("LOCK.ACQUIRE gate guest PX 1000 BLOCK 0"), 1, "without a channel nothing is asked");
}

#[test]
fn those_who_wait_are_listed_with_their_channel() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let _listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    bob.run("LOCK.ACQUIRE door bob PX 30000 BLOCK 0 NOTIFY news");
    let Reply::List(waiters) = alice.run("LOCK.WAITERS door") else { panic!("no list") };
    assert_eq!(waiters[0].get("token"), "bob");
    assert_eq!(waiters[0].get("channel"), "news");
    assert_eq!(waiters[0].get("client-id"), bob.id());
}
