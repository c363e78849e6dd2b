//! Every way in which the connection of a waiter ends: it leaves the queue, and the next in line is served. Where its grant
//! may have been sent already, the next is served when the lease ends.

use support::listener::Listener;
use support::raw::RawConnection;
use support::{Client, Reply, Server, Setup, Waiter, eventually, now_ms, waiters_of};

const LEASE_MS: i64 = 400;

/// Alice holds the door; a bare connection waits for it as bob, and carol behind it.
fn bob_and_carol_wait(server: &Server, first: &[&str]) -> (Client, RawConnection, Waiter) {
    bob_and_carol_wait_with("", server, first)
}

/// The same where bob's request has some more words.
fn bob_and_carol_wait_with(words: &str, server: &Server, first: &[&str]) -> (Client, RawConnection, Waiter) {
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = RawConnection::open(server.port());
    for line in first {
        bob.send(line);
    }
    bob.send(&format!("LOCK.ACQUIRE door bob PX {LEASE_MS} BLOCK 0 {words}"));
    eventually("bob waits", || waiters_of(&mut alice, "door") == 1);
    let carol = Waiter::start(server, "LOCK.ACQUIRE door carol BLOCK 0");
    (alice, bob, carol)
}

/// After `end` only carol waits, and she is served, whether bob was blocked or waited for a message: then who listened
/// hears nothing.
#[track_caller]
fn leaves_by(server: &Server, first: &[&str], end: impl Fn(&mut Client, RawConnection)) {
    let mut listener = Listener::start(server, "news");
    for words in ["", "NOTIFY news"] {
        let (mut alice, bob, mut carol) = bob_and_carol_wait_with(words, server, first);
        end(&mut alice, bob);
        eventually("only carol waits", || waiters_of(&mut alice, "door") == 1);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(carol.reply(), 1);
        assert_eq!(alice.run("LOCK.RELEASE door carol"), 0);
        assert_eq!(alice.run("LOCK.RELEASE door bob"), Reply::Nil, "its place was kept");
    }
    listener.has_heard_nothing_else();
}

#[test]
fn a_close() {
    leaves_by(&Server::start(), &[], |_, bob| drop(bob));
}

#[test]
fn a_half_close() {
    leaves_by(&Server::start(), &[], |_, mut bob| {
        bob.half_close();
        bob.drain();
    });
}

#[test]
fn a_reset() {
    // The answer to PING is left unread, so that closing sends a reset.
    leaves_by(&Server::start(), &["PING"], |_, bob| drop(bob));
}

/// A name of a key that is long enough for two of its kind to fill the buffer of [`BUFFERED`].
fn long_name() -> String {
    "x".repeat(64 * 1024)
}

const BUFFERED: &str = "client-output-buffer-limit normal 100kb 0 0";

/// A client that speaks RESP3 is sent messages while it waits: here the names of all keys that change.
const LISTENS: [&str; 2] = ["HELLO 3", "CLIENT TRACKING ON BCAST NOLOOP"];

#[test]
fn the_limit_of_the_output_buffer() {
    let server = Setup::new().config(BUFFERED).start();
    leaves_by(&server, &LISTENS, |alice, bob| {
        // It reads none of them. The kernel takes some in before the server's own buffer fills.
        let id_of_bob = alice.run("LOCK.WAITERS door COUNT 1").items()[0].get("client-id").int();
        eventually("the server gives up on bob", || {
            alice.send_together(&[format!("SET {} 1", long_name()).as_str(); 8]);
            assert!((0..8).all(|_| alice.receive() == "OK"));
            alice.run(&format!("CLIENT LIST ID {id_of_bob}")).string().is_empty()
        });
        drop(bob);
    });
}

/// With I/O threads a server may let go of a client before it has handed its answer on. The grant then goes on at once,
/// and the client has not been told of it.
#[track_caller]
fn was_let_go_early(server: &Server, mut bob: RawConnection) -> bool {
    while let Some(line) = bob.line() {
        assert_ne!(line, ":1", "bob was told");
    }
    server.has_io_threads()
}

#[test]
fn a_grant_that_meets_the_limit_of_the_output_buffer_stands_until_its_lease_ends() {
    let server = Setup::new().config(BUFFERED).start();
    let (mut alice, bob, mut carol) = bob_and_carol_wait(&server, &LISTENS);
    // In one transaction, so that all of it happens in one round. Of each key that changed in it, bob is told once.
    let sets: Vec<String> = (0..8).map(|number| format!("SET {number}{} 1", long_name())).collect();
    let mut lines = vec!["MULTI", "LOCK.RELEASE door alice"];
    lines.extend(sets.iter().map(String::as_str));
    lines.push("EXEC");
    let before = now_ms();
    alice.send_together(&lines);
    let replies: Vec<Reply> = lines.iter().map(|_| alice.receive()).collect();
    assert_eq!(replies.last().map(|all| all.items()[0].int()), Some(0), "{replies:?}");
    assert_eq!(carol.reply(), 1);
    let lasted = now_ms() - before;
    assert!(lasted >= LEASE_MS || was_let_go_early(&server, bob), "bob may have been told");
}

#[test]
fn the_end_of_its_user() {
    let server = Server::start();
    server.client().ok("ACL SETUSER guest on nopass ~* &* +@all");
    leaves_by(&server, &["AUTH guest x"], |alice, mut bob| {
        assert_eq!(alice.run("ACL DELUSER guest"), 1);
        bob.drain();
        alice.ok("ACL SETUSER guest on nopass ~* &* +@all");
    });
}

#[test]
fn an_idle_time_out_does_not_end_a_wait() {
    let server = Setup::new().config("timeout 1").start();
    let (_alice, _bob, carol) = bob_and_carol_wait(&server, &[]);
    // One who is idle without waiting is the control: when it is gone, the server has looked for idle clients.
    let mut idle = RawConnection::open(server.port());
    assert_eq!(idle.run("PING"), "+PONG");
    idle.drain();
    assert_eq!(waiters_of(&mut server.client(), "door"), 2);
    assert!(carol.is_blocked());
}

#[test]
fn a_grant_that_meets_the_end_of_its_user_stands_until_its_lease_ends() {
    let server = Server::start();
    server.client().ok("ACL SETUSER guest on nopass ~* +@all");
    let (mut alice, bob, mut carol) = bob_and_carol_wait(&server, &["AUTH guest x"]);
    let before = now_ms();
    alice.send_together(&["LOCK.RELEASE door alice", "ACL DELUSER guest"]);
    assert_eq!([alice.receive().int(), alice.receive().int()], [0, 1]);
    assert_eq!(carol.reply(), 1);
    let lasted = now_ms() - before;
    assert!(lasted >= LEASE_MS || was_let_go_early(&server, bob), "bob may have been told");
}

#[test]
fn a_grant_that_meets_a_kill_of_all_of_a_kind_does_not_outlive_its_lease() {
    let server = Server::start();
    let (mut alice, _bob, carol) = bob_and_carol_wait(&server, &[]);
    alice.send_together(&["LOCK.RELEASE door alice", "CLIENT KILL TYPE normal SKIPME yes"]);
    assert_eq!(alice.receive(), 0);
    assert!(alice.receive().int() >= 2);
    eventually("nobody is left to have it", || alice.run("EXISTS door") == 0);
    drop(carol);
}

#[test]
fn a_client_that_takes_its_grant_and_closes_at_once_has_had_it() {
    let server = Server::start();
    let mut alice = server.client();
    for round in 0..100 {
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = RawConnection::open(server.port());
        bob.send("LOCK.ACQUIRE door bob BLOCK 0");
        eventually("bob waits", || waiters_of(&mut alice, "door") == 1);
        let carol = Waiter::start(&server, &format!("LOCK.ACQUIRE door carol-{round} BLOCK 0"));
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.line().as_deref(), Some(":1"));
        drop(bob);
        drop(carol);
        eventually("nobody waits", || waiters_of(&mut alice, "door") == 0);
        assert_eq!(alice.run("GET door"), "bob", "round {round}: a lock without a session outlives its connection");
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
    }
}
