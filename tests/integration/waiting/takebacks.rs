//! Nobody is told that he holds a lock that is about to be taken back from a connection that is gone: what is overdue
//! for a lock is done before the next request for it is heard.

use support::process::Process;
use support::sessions::is_connected;
use support::{Client, OBSERVATION, Reply, Server, Setup, Waiter, eventually, never_within, now_ms};

/// The lock that all of these are about.
const RELEASE: &str = "LOCK.RELEASE door alice";

/// Alice holds the door, and bob and carol wait in that order, bob for a lock that belongs to his connection.
fn two_in_line() -> (Server, Client, Waiter, Waiter) {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0 SESSION");
    let carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
    (server, alice, bob, carol)
}

#[test]
fn a_grant_to_a_killed_client_is_not_confirmed_to_its_retry() {
    let (_server, mut alice, bob, mut carol) = two_in_line();
    let kill = format!("CLIENT KILL ID {}", bob.id());
    alice.send_together(&[RELEASE, &kill, "LOCK.ACQUIRE door bob"]);
    assert_eq!(alice.receive(), 0);
    assert_eq!(alice.receive(), 1);
    assert_eq!(alice.receive(), Reply::Nil, "it went to carol before the retry was heard");
    assert_eq!(carol.reply(), 1);
    assert_eq!(alice.run("GET door"), "carol");
}

#[test]
fn a_retry_that_waits_is_not_granted_what_its_dead_connection_holds() {
    let (server, mut alice, bob, carol) = two_in_line();
    drop(carol);
    eventually("carol has left", || support::waiters_of(&mut alice, "door") == 1);
    let kill = format!("CLIENT KILL ID {}", bob.id());
    alice.send_together(&[RELEASE, &kill, "LOCK.ACQUIRE door bob NX", "LOCK.INFO door"]);
    assert_eq!([alice.receive().int(), alice.receive().int()], [0, 1]);
    assert_eq!(alice.receive(), 1, "a fresh grant, because nobody else waits");
    assert_eq!(alice.receive().get("owner"), "bob");
    assert_eq!(server.client().run("LOCK.RELEASE door bob"), 0, "and it stays");
}

#[test]
fn a_session_that_was_killed_is_not_confirmed_to_its_retry() {
    let server = Server::start();
    let mut bob = server.client();
    let id = bob.id();
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 SESSION"), 1);
    let mut carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
    let mut alice = server.client();
    let kill = format!("CLIENT KILL ID {id}");
    alice.send_together(&[&kill, "LOCK.ACQUIRE door bob PX 60000 SESSION"]);
    assert_eq!(alice.receive(), 1);
    assert_eq!(alice.receive(), Reply::Nil);
    assert_eq!(carol.reply(), 1);
    assert_eq!(alice.run("GET door"), "carol");
}

#[test]
fn a_dead_holder_neither_extends_nor_draws() {
    for (request, code) in [("LOCK.EXTEND door bob PX 90000", "NOTOWNER"), ("LOCK.FENCE door bob fence", "NOTOWNER")] {
        let (_server, mut alice, bob, mut carol) = two_in_line();
        let kill = format!("CLIENT KILL ID {}", bob.id());
        alice.send_together(&[RELEASE, &kill, request]);
        assert_eq!([alice.receive().int(), alice.receive().int()], [0, 1]);
        assert_eq!(alice.receive().code(), code, "{request}");
        assert_eq!(carol.reply(), 1);
    }
}

#[test]
fn a_client_that_is_unblocked_and_waits_anew_in_one_round_is_still_known_when_it_is_killed() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = server.client();
    let id = bob.id();
    bob.send_together(&["LOCK.ACQUIRE door bob-1 BLOCK 0"]);
    eventually("bob waits", || support::waiters_of(&mut alice, "door") == 1);
    bob.send_together(&["LOCK.ACQUIRE door bob-2 PX 60000 BLOCK 0 SESSION"]);
    // A blocked client's pipeline runs where the server lets blocked clients go, before it has let go of bob.
    let mut dave = server.client();
    dave.send_together(&["BLPOP list 0"]);
    eventually("dave waits", || alice.run("CLIENT LIST").string().contains("cmd=blpop"));
    dave.send_together(&[&format!("CLIENT UNBLOCK {id}")]);
    assert_eq!(alice.run("RPUSH list x"), 1);
    assert_eq!(bob.receive(), Reply::Nil);
    eventually("bob waits anew", || support::waiters_of(&mut alice, "door") == 1);
    alice.send_together(&[RELEASE, &format!("CLIENT KILL ID {id}")]);
    assert_eq!([alice.receive().int(), alice.receive().int()], [0, 1]);
    eventually("the lock was taken back", || alice.run("EXISTS door") == 0);
}

/// Bob's session holds the door; the same token asks for it strictly, on another connection, and carol behind it. The lease
/// of the second grant is long.
fn one_token_twice(server: &Server, mut bob: Client, lease_ms: i64) -> (Client, Waiter, Waiter) {
    assert_eq!(bob.run(&format!("LOCK.ACQUIRE door bob PX {lease_ms} SESSION")), 1);
    let again = Waiter::start(server, "LOCK.ACQUIRE door bob NX PX 60000 BLOCK 0");
    let carol = Waiter::start(server, "LOCK.ACQUIRE door carol PX 60000 BLOCK 0");
    (bob, again, carol)
}

#[track_caller]
fn stands(control: &mut Client, mut again: Waiter, carol: &Waiter) {
    assert_eq!(again.reply(), 1);
    never_within(OBSERVATION, "it is taken back", || !carol.is_blocked());
    assert_eq!(control.run("GET door"), "bob");
}

#[test]
fn a_new_grant_to_the_same_token_is_not_taken_back_for_the_one_before() {
    let server = Setup::new().config("lock.rejoin-grace-ms 0").start();
    let mut control = server.client();
    for _ in 0..4 {
        let (bob, again, carol) = one_token_twice(&server, server.client(), 3000);
        let id = bob.id();
        // The take-back is put off, and somebody else frees the lock before it is tried again.
        control.ok("CONFIG SET min-replicas-to-write 1");
        drop(bob);
        eventually("bob is gone", || !is_connected(&mut control, id));
        control.send_together(&["CONFIG SET min-replicas-to-write 0", "UNLINK door"]);
        assert_eq!(control.receive(), "OK");
        if control.receive() == 1 {
            stands(&mut control, again, &carol);
        }
        control.run("LOCK.RELEASE door bob");
        drop(carol);
        eventually("carol is gone", || support::waiters_of(&mut control, "door") == 0);
        control.run("DEL door");
    }
}

#[test]
fn a_lease_and_a_connection_that_end_in_one_round_free_the_lock_once() {
    let server = Server::start();
    let mut control = server.client();
    let mut bob = server.client();
    // An earlier session of the connection, so that the door's is not the first to be given up.
    assert_eq!(bob.run("LOCK.ACQUIRE gate bob PX 60000 SESSION"), 1);
    let (bob, again, carol) = one_token_twice(&server, bob, 300);
    let (process, end) = (Process::of(&server), control.expires_at("door") + 300);
    process.stop();
    drop(bob);
    eventually("the lease is over", || now_ms() > end);
    process.resume();
    stands(&mut control, again, &carol);
}
