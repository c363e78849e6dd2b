//! How a wait for a message ends without the lock.

use std::time::Instant;

use support::listener::Listener;
use support::{Reply, Server, Setup, Waiter, Way, eventually, info_lock, waiters_of};

#[test]
fn one_whose_time_is_up_is_told_on_time_and_keeps_its_place() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let asked = Instant::now();
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 60 NOTIFY news"), Reply::waiting());
    let message = listener.hears("timeout", "bob", "door");
    assert!(asked.elapsed().as_millis() >= 60);
    assert_eq!(message.lease_end, 0);
    assert_eq!(waiters_of(&mut alice, "door"), 0);
    assert_eq!(info_lock(&mut alice, "timed_out"), 1);
    let carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    listener.hears("granted", "bob", "door");
    assert!(carol.is_blocked());
}

#[test]
fn release_withdraws_and_says_so() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(bob.run("LOCK.REENTER door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(alice.run("LOCK.RELEASE door bob"), Reply::Nil);
    listener.hears("withdrawn", "bob", "door");
    listener.hears("withdrawn", "bob", "door");
    assert_eq!(waiters_of(&mut alice, "door"), 0);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    for line in ["MULTI", "LOCK.RELEASE door bob", "EXEC"] {
        assert!(!alice.run(line).is_error(), "{line}");
    }
    listener.hears("withdrawn", "bob", "door");
}

#[test]
fn what_a_connection_asked_for_goes_with_it_and_its_places_are_kept() {
    let server = Server::start();
    let (mut alice, mut bob, mut control) = (server.client(), server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    for key in 0..3 {
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE door{key} alice")), 1);
        assert_eq!(bob.run(&format!("LOCK.ACQUIRE door{key} bob PX 60000 BLOCK 0 NOTIFY news")), Reply::waiting());
    }
    drop(bob);
    eventually("nobody waits", || info_lock(&mut control, "waiters") == 0);
    listener.has_heard_nothing_else();
    let carol = Waiter::start(&server, "LOCK.ACQUIRE door0 carol BLOCK 0");
    let mut bob = server.client();
    assert_eq!(bob.run("LOCK.ACQUIRE door0 bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert_eq!(alice.run("LOCK.RELEASE door0 alice"), 0);
    listener.hears("granted", "bob", "door0");
    assert!(carol.is_blocked());
}

#[test]
fn who_closes_in_the_round_of_the_grant_is_passed_over() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let _listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    let mut carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
    let id = bob.id();
    alice.send_together(&["MULTI", &format!("CLIENT KILL ID {id}"), "LOCK.RELEASE door alice", "EXEC"]);
    assert_eq!(carol.reply(), 1);
}

#[test]
fn they_are_lost_when_the_server_becomes_a_replica() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut listener = Listener::start(&server, "news");
    for key in 0..3 {
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE door{key} alice")), 1);
        assert_eq!(bob.run(&format!("LOCK.ACQUIRE door{key} bob PX 60000 BLOCK 0 NOTIFY news")), Reply::waiting());
    }
    alice.ok("REPLICAOF 127.0.0.1 1");
    let mut lost: Vec<_> = (0..3).map(|_| listener.message()).map(|message| (message.event, message.key)).collect();
    lost.sort();
    assert_eq!(lost, ["door0", "door1", "door2"].map(|key| ("lost".to_owned(), key.to_owned())));
    eventually("nobody waits", || info_lock(&mut alice, "waiters") == 0);
}

#[test]
fn thousands_are_lost_within_a_second_when_the_server_becomes_a_replica() {
    const COUNT: usize = 10_000;
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut late = Vec::new();
    // Attempts at a fair measurement on a busy machine.
    for _ in 0..6 {
        let mut listener = Listener::start(&server, "news");
        alice.ok("SET door alice");
        let asks: Vec<String> =
            (0..COUNT).map(|token| format!("LOCK.ACQUIRE door {token} PX 60000 BLOCK 0 NOTIFY news")).collect();
        for some in asks.chunks(500) {
            bob.send_together(some);
            assert!(some.iter().all(|_| bob.receive() == Reply::waiting()));
        }
        alice.ok("REPLICAOF 127.0.0.1 1");
        let since = Instant::now();
        (0..COUNT).for_each(|_| assert_eq!(listener.message().event, "lost"));
        late.push(since.elapsed());
        alice.ok("REPLICAOF NO ONE");
        if late.last().is_some_and(|late| late.as_millis() < 1000) {
            return;
        }
    }
    panic!("lost after {late:?}");
}

/// A subscriber may be idle, and so may a blocked client. One that has only asked is idle like any other.
#[test]
fn an_idle_time_out_ends_what_a_connection_asked_for_that_does_not_listen() {
    let server = Setup::new().config("timeout 1").start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let first = Way::Notified.start(&server, "LOCK.ACQUIRE door first BLOCK 0");
    let mut second = Way::OnOneConnection.start(&server, "LOCK.ACQUIRE door second BLOCK 0");
    eventually("only the second waits", || waiters_of(&mut alice, "door") == 1);
    assert!(second.id() == second.id_of_listener() && first.id() != first.id_of_listener());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(second.reply(), 1);
    drop(first);
}

#[test]
fn the_module_is_not_unloaded_while_somebody_waits() {
    let server = Setup::new().start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let _listener = Listener::start(&server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news"), Reply::waiting());
    assert!(alice.run("MODULE UNLOAD lock").is_error());
    assert_eq!(bob.run("LOCK.RELEASE door bob"), Reply::Nil);
    assert_eq!(bob.run("PING"), "PONG");
    eventually("nobody waits", || alice.run("MODULE UNLOAD lock") == "OK");
}
