//! Who waits for a message gets the lock in turn, and is told once.

use support::listener::Listener;
use support::sessions::session_of;
use support::{
    OBSERVATION, Protocol, Reply, Server, Waiter, eventually, field, info_lock, never_within, now_ms, waiters_of,
};

#[test]
fn release_grants_in_the_same_step_and_the_lease_counts_from_then() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 30000 BLOCK 0 NOTIFY news"), Reply::waiting());
    let before = now_ms();
    alice.send_together(&["LOCK.RELEASE door alice", "GET door"]);
    assert_eq!(alice.receive(), 0);
    assert_eq!(alice.receive(), "bob");
    let message = listener.hears("granted", "bob", "door");
    assert_eq!(message.lease_end, alice.expires_at("door"));
    assert!((before + 30_000..=now_ms() + 30_000).contains(&message.lease_end));
    assert_eq!(message.db, 0);
    assert_eq!(bob.run("LOCK.RELEASE door bob"), 0);
    listener.has_heard_nothing_else();
}

#[test]
fn one_connection_releases_and_hears_of_its_own_grant() {
    let server = Server::start();
    let mut client = server.client_speaking(Protocol::Resp3);
    client.send_together(&["SSUBSCRIBE news"]);
    assert!(matches!(client.receive(), Reply::Push(_)));
    assert_eq!(client.run("LOCK.REENTER door one PX 30000"), 1);
    assert_eq!(client.run("LOCK.REENTER door two PX 30000 BLOCK 0 NOTIFY news"), Reply::waiting());
    client.send_together(&["LOCK.RELEASE door one"]);
    let mut replies = [client.receive(), client.receive()];
    replies.sort_by_key(|reply| matches!(reply, Reply::Push(_)));
    assert_eq!(replies[0], 0);
    assert!(matches!(&replies[1], Reply::Push(parts) if parts[2].string().starts_with("granted ")));
}

#[test]
fn every_end_of_a_lock_grants() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    for (key, end) in [("deleted", "DEL deleted"), ("lapsed", "PEXPIRE lapsed 5"), ("renamed", "RENAME renamed away")] {
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX 60000")), 1);
        assert_eq!(bob.run(&format!("LOCK.ACQUIRE {key} bob PX 60000 BLOCK 0 NOTIFY news")), Reply::waiting());
        alice.run(end);
        listener.hears("granted", "bob", key);
    }
    bob.ok("SELECT 3");
    alice.ok("SELECT 3");
    assert_eq!(alice.run("LOCK.ACQUIRE flushed alice PX 60000"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE flushed bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    alice.ok("FLUSHDB");
    assert_eq!(listener.hears("granted", "bob", "flushed").db, 3);
}

#[test]
fn they_stand_in_one_line_with_blocked_clients() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door first PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    let mut second = Waiter::start(&server, "LOCK.ACQUIRE door second PX 60000 BLOCK 0");
    assert_eq!(bob.run("LOCK.ACQUIRE door third PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "first", "door");
    assert!(second.is_blocked());
    assert_eq!(bob.run("LOCK.RELEASE door first"), 0);
    assert_eq!(second.reply(), 1);
    listener.has_heard_nothing_else();
    assert_eq!(alice.run("LOCK.RELEASE door second"), 0);
    listener.hears("granted", "third", "door");
}

#[test]
fn copies_share_a_place_and_all_are_told() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    let mut blocked = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(waiters_of(&mut alice, "door"), 2);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(blocked.reply(), 1);
    let message = listener.hears("granted", "bob", "door");
    assert_eq!(message.lease_end, alice.expires_at("door"), "with a lease, though the other copy has none");
    listener.has_heard_nothing_else();
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), 1, "it is the holder");
}

#[test]
fn a_repeat_takes_the_place_of_the_earlier_request_and_one_message_comes() {
    let server = Server::start();
    let (mut alice, mut bob, mut again) = (server.client(), server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 50 NOTIFY news"), Reply::waiting());
    assert_eq!(again.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(waiters_of(&mut alice, "door"), 1);
    drop(bob);
    never_within(OBSERVATION, "the time of the earlier request is up, or it is gone with its connection", || {
        waiters_of(&mut alice, "door") != 1
    });
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "bob", "door");
    listener.has_heard_nothing_else();
}

#[test]
fn repeat_by_message_brings_its_own_limit() {
    let server = Server::start();
    let mut bob = server.client();
    let mut listener = Listener::start(&server, "news");
    for name in ["one", "two"] {
        assert_eq!(bob.run(&format!("LOCK.SHARE door {name} PX 600000")), 1);
    }
    for limit in [1, 5] {
        let ask = format!("LOCK.SHARE door bob PX 60000 LIMIT {limit} BLOCK 1500 NOTIFY news");
        assert_eq!(bob.run(&ask), Reply::waiting());
    }
    listener.hears("granted", "bob", "door");
}

/// The longer lease is that of a copy whose channel has lost its subscriber.
#[test]
fn unheard_copy_adds_nothing_to_the_lease() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let gone = Listener::start(&server, "gone");
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    for (ms, channel) in [(90_000, "gone"), (60_000, "news")] {
        assert_eq!(bob.run(&format!("LOCK.ACQUIRE door bob PX {ms} BLOCK 0 NOTIFY {channel}")), Reply::waiting());
    }
    drop(gone);
    eventually("the server knows", || alice.run("PUBSUB SHARDNUMSUB gone").items()[1] == 0);
    let before = now_ms();
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    let message = listener.hears("granted", "bob", "door");
    assert!((before + 60_000..=now_ms() + 60_000).contains(&message.lease_end));
    assert_eq!(alice.expires_at("door"), message.lease_end);
}

#[test]
fn a_grant_that_nobody_hears_goes_to_the_next() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let gone = Listener::start(&server, "gone");
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    for (token, channel) in [("first", "gone"), ("second", "gone"), ("third", "news")] {
        assert_eq!(bob.run(&format!("LOCK.ACQUIRE door {token} PX 60000 BLOCK 0 NOTIFY {channel}")), Reply::waiting());
    }
    drop(gone);
    eventually("the server knows", || alice.run("PUBSUB SHARDNUMSUB gone").items()[1] == 0);
    alice.send_together(&["LOCK.RELEASE door alice", "GET door"]);
    assert_eq!(alice.receive(), 0);
    assert_eq!(alice.receive(), "third");
    listener.hears("granted", "third", "door");
    // They keep their turns for a while.
    let _back = Listener::start(&server, "gone");
    assert_eq!(bob.run("LOCK.ACQUIRE door fourth PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(bob.run("LOCK.ACQUIRE door first PX 60000 BLOCK 0 NOTIFY gone"), Reply::waiting());
    assert_eq!(alice.run("LOCK.RELEASE door third"), 0);
    assert_eq!(field(&mut alice, "door", "owner"), "first");
    assert_eq!(info_lock(&mut alice, "waiters"), 1);
}

#[test]
fn hundreds_that_nobody_hears_of_hold_nobody_up_for_long() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let gone = Listener::start(&server, "gone");
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    for number in 0..250 {
        assert_eq!(bob.run(&format!("LOCK.ACQUIRE door gone{number} PX 60000 BLOCK 0 NOTIFY gone")), Reply::waiting());
    }
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    drop(gone);
    eventually("the server knows", || alice.run("PUBSUB SHARDNUMSUB gone").items()[1] == 0);
    alice.send_together(&["LOCK.RELEASE door alice", "LOCK.ACQUIRE door carol"]);
    assert_eq!(alice.receive(), 0);
    assert_eq!(alice.receive(), Reply::Nil, "carol overtakes nobody");
    listener.hears("granted", "bob", "door");
}

#[test]
fn release_in_a_transaction_grants() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client_speaking(Protocol::Resp3), server.client());
    alice.send_together(&["SSUBSCRIBE news"]);
    assert!(matches!(alice.receive(), Reply::Push(_)));
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    for line in ["MULTI", "LOCK.RELEASE door alice", "LOCK.ACQUIRE door carol"] {
        assert!(!alice.run(line).is_error(), "{line}");
    }
    alice.send_together(&["EXEC"]);
    let mut replies = [alice.receive(), alice.receive()];
    replies.sort_by_key(|reply| matches!(reply, Reply::Push(_)));
    assert_eq!(replies[0], Reply::List(vec![Reply::Int(0), Reply::Nil]), "carol overtakes nobody");
    assert!(matches!(&replies[1], Reply::Push(parts) if parts[2].string().starts_with("granted ")));
}

#[test]
fn with_session_the_lock_belongs_to_the_connection_that_asked() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 SESSION NOTIFY news"), Reply::waiting());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "bob", "door");
    let id = bob.id();
    assert_eq!(session_of(&mut alice, "door"), [id]);
    drop(bob);
    eventually("its lock goes with it", || alice.run("EXISTS door") == 0);
}

#[test]
fn a_repeat_without_session_does_not_take_the_session_away() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 30000 BLOCK 0 SESSION NOTIFY news"), Reply::waiting());
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 30000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "bob", "door");
    assert_eq!(session_of(&mut alice, "door"), [bob.id()]);
    drop(bob);
    eventually("the lock is free", || alice.run("EXISTS door") == 0);
}

#[test]
fn who_was_told_keeps_the_session_when_a_copy_of_the_request_is_let_go() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 30000 BLOCK 0 SESSION NOTIFY news"), Reply::waiting());
    let id = bob.id();
    bob.send_together(&["LOCK.ACQUIRE door bob PX 30000 BLOCK 0 SESSION"]);
    eventually("both wait", || waiters_of(&mut alice, "door") == 2);
    alice.send_together(&["MULTI", "LOCK.RELEASE door alice", &format!("CLIENT UNBLOCK {id} ERROR"), "EXEC"]);
    (0..4).for_each(|_| _ = alice.receive());
    listener.hears("granted", "bob", "door");
    assert_eq!(session_of(&mut alice, "door"), [id]);
}

#[test]
fn who_takes_the_place_of_another_adds_no_session() {
    let server = Server::start();
    let (mut alice, mut bob, mut again) = (server.client(), server.client(), server.client());
    let _listener = Listener::start(&server, "news");
    alice.ok("CONFIG SET lock.max-sessions 1");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let ask = "LOCK.ACQUIRE door bob PX 30000 BLOCK 0 SESSION NOTIFY news";
    assert_eq!(bob.run(ask), Reply::waiting());
    assert_eq!(again.run(ask), Reply::waiting());
    assert_eq!(again.run("LOCK.ACQUIRE door carol PX 30000 BLOCK 0 SESSION NOTIFY news").code(), "SESSIONFULL");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(session_of(&mut alice, "door"), [again.id()]);
}
