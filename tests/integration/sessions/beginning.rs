//! A lock that belongs to a connection: what begins such a session, what it renews.

use std::time::{Duration, Instant};

use support::sessions::{in_session, is_connected, is_renewed, session_of};
use support::{Library, Reply, Server, Setup, Waiter, eventually, field, info_lock, remaining_ms, waiters_of};

/// Short enough to see many of them, long enough for a machine that is busy.
const LEASE_MS: i64 = 150;

const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

const NO_SESSION: [i64; 0] = [];

/// Many leases long the lock is `alice`'s, and whoever waits is not served.
#[track_caller]
fn is_held_for_many_leases(server: &Server) {
    let mut control = server.client();
    let bob = Waiter::start(server, "LOCK.ACQUIRE door bob BLOCK 0");
    let begin = control.expires_at("door");
    assert_eq!(control.run(&format!("SET other x PX {LEASE_MS}")), "OK");
    let asked = Instant::now();
    eventually("the lease was renewed many times", || control.expires_at("door") >= begin + 5 * LEASE_MS);
    assert!(asked.elapsed() >= Duration::from_millis(600), "renewed when it is time, not ahead of it");
    assert_eq!(control.run("EXISTS other"), 0, "what nobody renews is gone");
    assert!(remaining_ms(&mut control, "door") <= LEASE_MS);
    assert_eq!(field(&mut control, "door", "owner"), "alice");
    assert!(bob.is_blocked());
}

#[test]
fn the_lease_is_renewed_while_the_connection_is_open() {
    for take in TAKE {
        let (server, _alice) = in_session(take, LEASE_MS);
        is_held_for_many_leases(&server);
    }
}

#[test]
fn the_lease_is_renewed_with_all_holds() {
    let (server, mut alice) = in_session("LOCK.REENTER", LEASE_MS);
    for holds in 2..=4 {
        assert_eq!(alice.run("LOCK.REENTER door alice"), holds);
    }
    is_held_for_many_leases(&server);
    for holds in (0..4).rev() {
        assert_eq!(alice.run("LOCK.RELEASE door alice"), holds);
        if holds > 0 {
            is_renewed(&mut alice, "door");
        }
    }
    assert_eq!(info_lock(&mut alice, "sessions"), 0);
}

#[test]
fn the_lease_is_renewed_after_waiting_and_in_a_transaction() {
    for take in TAKE {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
        let mut alice = Waiter::start(&server, &format!("{take} door alice PX {LEASE_MS} SESSION BLOCK 0"));
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(alice.reply(), 1);
        is_held_for_many_leases(&server);
    }
    let server = Server::start();
    let mut alice = server.client();
    alice.send_together(&["MULTI", "LOCK.ACQUIRE door alice PX 150 SESSION", "EXEC"]);
    assert_eq!(alice.receive(), "OK");
    assert_eq!(alice.receive(), "QUEUED");
    assert_eq!(alice.receive(), Reply::list([Reply::Int(1)]));
    is_held_for_many_leases(&server);
}

#[test]
fn scripts_and_functions_have_no_connection() {
    let server = Server::start();
    let mut alice = server.client();
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'alice', 'PX', '60000', 'SESSION')";
    let library = "#!lua name=locks\nredis.register_function('take', function(KEYS) \
                   return redis.call('LOCK.REENTER', KEYS[1], 'alice', 'PX', '60000', 'SESSION') end)";
    assert_eq!(alice.call(&["FUNCTION", "LOAD", library]), "locks");
    for refused in [alice.call(&["EVAL", script, "1", "door"]), alice.run("FCALL take 1 door")] {
        assert!(refused.error().contains("a session is not allowed in scripts"), "{refused:?}");
    }
    assert_eq!(alice.run("EXISTS door"), 0, "nothing was taken");
    assert_eq!(info_lock(&mut alice, "sessions"), 0);
}

/// Its client has no connection that could close.
#[test]
fn a_call_by_another_module_has_no_connection() {
    let caller = Library::compile("tests/modules/caller.c");
    let server = Setup::new().config(&format!("loadmodule {}", caller.path().display())).start();
    let mut client = server.client();
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        let reply = client.run(&format!("CALLER.CALL {take} door alice PX 60000 SESSION"));
        assert_eq!(reply.error(), "ERR a session is not allowed in scripts and calls by other modules");
        assert_eq!(
            client.run(&format!("CALLER.CALL {take} door alice PX 60000")),
            1,
            "without a session it is like any"
        );
        assert_eq!(client.run("CALLER.CALL LOCK.RELEASE door alice"), 0);
        client.ok("MULTI");
        client.run(&format!("CALLER.CALL {take} door alice PX 60000 SESSION"));
        client.run(&format!("CALLER.CALL {take} door alice PX 60000 BLOCK 0 NOTIFY news"));
        for (reply, what) in client.run("EXEC").items().iter().zip(["a session", "NOTIFY"]) {
            assert_eq!(reply.error(), format!("ERR {what} is not allowed in scripts and calls by other modules"));
        }
    }
    assert_eq!(info_lock(&mut client, "sessions"), 0);
}

/// As the user of its client, and with leave to block: Valkey 9.1 then finds the stand-in as if it were a client.
#[test]
fn a_call_by_another_module_begins_no_session_however_it_is_made() {
    let caller = Library::compile("tests/modules/caller.c");
    let server = Setup::new().config(&format!("loadmodule {}", caller.path().display())).start();
    let (mut client, mut listener) = (server.client(), server.client());
    listener.send(&["SSUBSCRIBE", "news"]);
    listener.receive();
    assert_eq!(client.run("LOCK.ACQUIRE gate holder"), 1);
    for flags in ["E", "EC", "EK", "ECK"] {
        let lines = [
            format!("CALLER.AS {flags} LOCK.ACQUIRE door alice PX 60000 SESSION"),
            format!("CALLER.AS {flags} LOCK.REENTER gate alice PX 60000 BLOCK 0 SESSION NOTIFY news"),
            format!("CALLER.AS {flags} LOCK.ACQUIRE gate alice PX 60000 BLOCK 0 NOTIFY news"),
        ];
        for line in &lines {
            assert_eq!(client.run(line).code(), "ERR", "{line}");
            client.send_together(&["MULTI", line, "EXEC"]);
            let replies = [(); 3].map(|()| client.receive());
            assert_eq!(replies[2].items()[0].code(), "ERR", "{line} in MULTI");
        }
    }
    assert_eq!(info_lock(&mut client, "sessions"), 0);
    assert_eq!(info_lock(&mut client, "waiters"), 0);
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 60000 SESSION"), 1, "and a client begins one all the same");
}

#[test]
fn a_lease_is_needed() {
    let server = Server::start();
    let mut alice = server.client();
    for take in TAKE {
        let refused = alice.run(&format!("{take} door alice SESSION"));
        assert_eq!(refused.error(), "ERR a session needs a lease, EX or PX");
        assert_eq!(alice.run("EXISTS door"), 0);
        assert_eq!(alice.run(&format!("{take} door alice")), 1);
        assert_eq!(alice.run(&format!("{take} door alice PX 60000 SESSION")).code(), "NOLEASE", "{take}");
        assert_eq!(field(&mut alice, "door", "holds"), 1, "{take}: no hold came with it");
        assert_eq!(alice.pttl("door"), -1);
        assert_eq!(info_lock(&mut alice, "sessions"), 0);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    }
}

#[test]
fn a_lease_is_100_ms_or_more() {
    let server = Server::start();
    let mut alice = server.client();
    for lease in ["PX 1", "PX 99"] {
        for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
            let refused = alice.run(&format!("{take} door alice {lease} SESSION"));
            assert_eq!(refused.error(), format!("ERR invalid expire time in '{}' command", take.to_lowercase()));
        }
    }
    assert_eq!(alice.run("EXISTS door"), 0);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 100 SESSION"), 1);
    // A shorter one is set exactly, and then what is renewed is 100 ms again.
    assert_eq!(alice.run("LOCK.EXTEND door alice PX 20"), 20);
    is_renewed(&mut alice, "door");
    assert!(remaining_ms(&mut alice, "door") > 20);
}

fn session_full(reply: &Reply) {
    assert_eq!(reply.code(), "SESSIONFULL", "{reply:?}");
}

#[test]
fn pairs_of_a_connection_and_a_lock_have_a_limit_and_those_who_wait_for_one_count() {
    let server = Setup::new().config("lock.max-sessions 3").start();
    let [mut alice, mut bob, mut control] = [(); 3].map(|()| server.client());
    for key in ["one", "two"] {
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice PX 60000 SESSION")), 1);
    }
    let waiter = Waiter::start(&server, "LOCK.REENTER one carol PX 60000 SESSION BLOCK 0");
    let mut four = vec![alice.run("LOCK.ACQUIRE three alice PX 60000 SESSION")];
    four.push(alice.run("LOCK.REENTER three alice PX 60000 SESSION"));
    four.push(bob.run("LOCK.ACQUIRE two alice PX 60000 SESSION"));
    four.push(bob.run("LOCK.ACQUIRE two bob PX 60000 SESSION BLOCK 0"));
    four.iter().for_each(session_full);
    assert_eq!(control.run("EXISTS three"), 0, "nothing was changed");
    assert_eq!(waiters_of(&mut control, "two"), 0);
    assert_eq!(session_of(&mut control, "two"), [alice.id()]);
    // A repeat adds none, an answer of nil begins none, and neither does a lock without a session.
    assert_eq!(alice.run("LOCK.ACQUIRE two alice PX 60000 SESSION"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE two bob PX 60000 SESSION"), Reply::Nil);
    assert_eq!(bob.run("LOCK.ACQUIRE three bob PX 60000"), 1);
    drop(waiter);
    eventually("the waiter has left", || waiters_of(&mut control, "one") == 0);
    assert_eq!(bob.run("LOCK.ACQUIRE two alice PX 60000 SESSION"), 1);
    session_full(&bob.run("LOCK.ACQUIRE four bob PX 60000 SESSION"));
    drop(alice);
    eventually("alice's pairs are gone", || control.run("EXISTS one") == 0);
    assert_eq!(bob.run("LOCK.ACQUIRE four bob PX 60000 SESSION"), 1);
    control.ok("CONFIG SET lock.max-sessions 0");
    session_full(&bob.run("LOCK.ACQUIRE five bob PX 60000 SESSION"));
    assert_eq!(bob.run("LOCK.RELEASE four bob"), 0, "what is there stays");
}

#[test]
fn a_wait_that_is_granted_takes_no_second_place_under_the_limit() {
    let server = Setup::new().config("lock.max-sessions 1").start();
    let [mut alice, mut control] = [(); 2].map(|()| server.client());
    for _ in 0..3 {
        assert_eq!(control.run("LOCK.ACQUIRE door control"), 1);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 SESSION BLOCK 0");
        session_full(&alice.run("LOCK.ACQUIRE gate alice PX 60000 SESSION"));
        assert_eq!(control.run("LOCK.RELEASE door control"), 0);
        assert_eq!(bob.reply(), 1);
        session_full(&alice.run("LOCK.ACQUIRE gate alice PX 60000 SESSION"));
        assert_eq!(control.run("LOCK.RELEASE door bob"), 0);
    }
}

#[test]
fn lock_info_lists_the_connections_and_info_counts_the_sessions() {
    let server = Server::start();
    let mut control = server.client();
    let (mut one, mut two) = (server.client(), server.client());
    assert_eq!(session_of(&mut control, "door"), NO_SESSION);
    assert_eq!(one.run("LOCK.ACQUIRE door alice PX 60000 SESSION"), 1);
    assert_eq!(session_of(&mut control, "door"), [one.id()]);
    assert_eq!(two.run("LOCK.ACQUIRE door alice PX 60000"), 1);
    assert_eq!(session_of(&mut control, "door"), [one.id()], "who does not ask for it is not in it");
    assert_eq!(two.run("LOCK.ACQUIRE door alice PX 60000 SESSION"), 1);
    assert_eq!(session_of(&mut control, "door"), [one.id(), two.id()]);
    assert_eq!(two.run("LOCK.REENTER gate alice PX 60000 SESSION"), 1);
    assert_eq!(info_lock(&mut control, "sessions"), 2);
    assert_eq!(two.run("LOCK.ACQUIRE door bob PX 60000 SESSION"), Reply::Nil);
    assert_eq!(info_lock(&mut control, "sessions"), 2, "who does not get the lock has no session");
    assert_eq!(one.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(session_of(&mut control, "door"), NO_SESSION);
    assert_eq!(info_lock(&mut control, "sessions"), 1);
}

#[test]
fn a_session_may_begin_with_a_repeat() {
    let server = Server::start();
    let mut control = server.client();
    for (take, holds) in [("LOCK.ACQUIRE", 1), ("LOCK.REENTER", 2)] {
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("{take} door alice PX {LEASE_MS}")), 1);
        assert_eq!(alice.run(&format!("{take} door alice PX {LEASE_MS} SESSION")), holds);
        is_renewed(&mut control, "door");
        drop(alice);
        eventually("the lock is released", || control.run("EXISTS door") == 0);
    }
}

#[test]
fn a_repeat_without_session_changes_nothing() {
    let (server, alice) = in_session("LOCK.ACQUIRE", LEASE_MS);
    let mut other = server.client();
    assert_eq!(other.run("LOCK.ACQUIRE door alice PX 10"), 1);
    assert_eq!(other.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(session_of(&mut other, "door"), [alice.id()]);
    is_renewed(&mut other, "door");
    drop(alice);
    eventually("the lock is released", || other.run("EXISTS door") == 0);
}

#[test]
fn the_connection_that_only_repeats_may_close() {
    let (server, mut alice) = in_session("LOCK.ACQUIRE", LEASE_MS);
    let mut other = server.client();
    let id = other.id();
    assert_eq!(other.run("LOCK.ACQUIRE door alice PX 10"), 1);
    drop(other);
    eventually("it is gone", || !is_connected(&mut alice, id));
    is_held_for_many_leases(&server);
}

#[test]
fn extend_sets_the_length_that_is_renewed_from_then_on() {
    let server = Server::start();
    let (mut alice, mut other) = (server.client(), server.client());
    for take in TAKE {
        assert_eq!(alice.run(&format!("{take} door alice PX 600000 SESSION")), 1);
        assert_eq!(other.run(&format!("LOCK.EXTEND door alice PX {LEASE_MS}")), LEASE_MS);
        let end = other.expires_at("door");
        eventually("renewed over many leases", || {
            let left = other.pttl("door");
            assert!(left <= LEASE_MS, "{take}: renewed for longer than was set: {left}");
            other.expires_at("door") > end + 3 * LEASE_MS
        });
        assert!(other.run("LOCK.EXTEND door alice PX 60000 ADD").int() > 60_000);
        assert!(remaining_ms(&mut other, "door") > 59_000);
        assert_eq!(other.run(&format!("LOCK.EXTEND door alice PX {LEASE_MS}")), LEASE_MS);
        is_renewed(&mut other, "door");
        assert_eq!(other.run("LOCK.RELEASE door alice"), 0);
    }
}
