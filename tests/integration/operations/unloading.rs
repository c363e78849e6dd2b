//! When the module is not unloaded, because clients would lose something or the server would crash, and that it is unloaded
//! otherwise.

use std::time::Duration;

use support::{Client, Reply, Server, Setup, Waiter, Way, eventually, happens_within, module_under_test, waiters_of};

/// The server refuses for a reason of its own in an iteration of its event loop in which the module's timer fires.
#[track_caller]
fn assert_unload_refused(admin: &mut Client, server: &Server, reason: &str) {
    let says_reason = happens_within(Duration::from_secs(5), || {
        let refused = admin.run("MODULE UNLOAD lock");
        assert!(refused.is_error(), "{refused:?}");
        server.log().contains(reason)
    });
    assert!(says_reason, "no {reason:?} in the log:\n{}", server.log());
}

#[track_caller]
fn assert_refused(admin: &mut Client, server: &Server, reason: &str) {
    assert_unload_refused(admin, server, reason);
    assert_eq!(admin.run("LOCK.ACQUIRE other admin"), 1, "it goes on working");
    assert_eq!(admin.run("LOCK.RELEASE other admin"), 0);
}

/// Servers use the commands of a module for these replies.
#[track_caller]
fn assert_unloads(admin: &mut Client) {
    eventually("it is unloaded", || admin.run("MODULE UNLOAD lock") == "OK");
    assert!(admin.run("LOCK.INFO door").error().starts_with("ERR unknown command"));
    assert!(!admin.run("ACL LIST").is_error());
    assert!(!admin.run("CLIENT LIST").is_error());
}

#[test]
fn waiter_session_or_recovery_period_prevents_unload() {
    let server = Setup::new().config("lock.recovery-ms 600000").start();
    let (mut admin, mut alice) = (server.client(), server.client());
    assert_unload_refused(&mut admin, &server, "lock_recovery_ms");
    admin.ok("CONFIG SET lock.recovery-ms 0");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    // The server itself refuses while a client is blocked.
    let mut bob = Way::Notified.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_refused(&mut admin, &server, "module lock is not unloaded: requests are waiting");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    drop(bob);
    assert_eq!(alice.run("LOCK.REENTER gate alice PX 500 SESSION"), 1);
    assert_refused(&mut admin, &server, "module lock is not unloaded: there are sessions");
    let end = admin.expires_at("gate");
    eventually("the lease is renewed", || admin.expires_at("gate") > end);
    drop(alice);
    assert_unloads(&mut admin);
    assert_eq!(admin.run("EXISTS gate"), 0, "the session ended with its connection");
}

#[test]
fn acl_rule_prevents_unload() {
    let server = Server::start();
    let mut admin = server.client();
    // A selector is one word, and a pattern has any bytes.
    let rules: [&[&[u8]]; 4] =
        [&[b"+lock.acquire"], &[b"+@all", b"-lock.info"], &[b"(+LOCK.EXTEND ~door)"], &[b"~\xf6*", b"+lock.acquire"]];
    for rule in rules {
        assert_eq!(admin.call(&[&[b"ACL".as_slice(), b"SETUSER", b"bob"], rule].concat()), "OK", "{rule:?}");
        // Valkey 9.1 refuses by itself, with another message.
        assert_refused(&mut admin, &server, " ACL ");
        assert_eq!(admin.run("ACL DELUSER bob"), 1);
    }
    admin.ok("ACL SETUSER lock.bob on nopass ~lock.* +get");
    assert_unloads(&mut admin);
}

#[test]
fn last_command_of_connection_prevents_unload() {
    let server = Server::start();
    let (mut admin, mut bob) = (server.client(), server.client());
    // The list of connections may have any bytes.
    let user: [&[u8]; 8] = [b"ACL", b"SETUSER", b"b\xf6b", b"on", b"nopass", b"~*", b"&*", b"+@all"];
    assert_eq!(admin.call(&user), "OK");
    assert_eq!(bob.call(&[b"AUTH".as_slice(), b"b\xf6b", b"any"]), "OK");
    assert_eq!(bob.run("LOCK.ACQUIRE gate bob"), 1);
    assert_refused(&mut admin, &server, "module lock is not unloaded: connection ");
    assert_eq!(bob.run("GET gate"), "bob");
    assert_unloads(&mut admin);
    assert_eq!(bob.run("GET gate"), "bob");
}

#[test]
fn queued_command_prevents_unload() {
    let server = Server::start();
    let (mut admin, mut bob) = (server.client(), server.client());
    bob.ok("MULTI");
    assert_eq!(bob.run("LOCK.ACQUIRE gate bob"), "QUEUED");
    assert_eq!(bob.run("PING"), "QUEUED");
    assert_refused(&mut admin, &server, "module lock is not unloaded: connection ");
    assert_eq!(bob.run("EXEC").items().len(), 2);
    assert_eq!(bob.run("PING"), "PONG");
    assert_unloads(&mut admin);
}

/// Newer servers look up the commands of a pipeline before they run the first.
#[test]
fn blocked_connection_prevents_unload() {
    let server = Server::start();
    let (mut admin, mut bob) = (server.client(), server.client());
    bob.send_together(&["BLPOP list 0", "LOCK.ACQUIRE gate bob", "PING"]);
    eventually("bob waits", || admin.info("clients", "blocked_clients").as_deref() == Some("1"));
    assert_refused(&mut admin, &server, "module lock is not unloaded: connection ");
    assert_eq!(admin.run("RPUSH list item"), 1);
    assert_eq!(bob.receive().items().len(), 2);
    assert_eq!([bob.receive(), bob.receive()], [Reply::Int(1), Reply::Status("PONG".into())]);
    assert_unloads(&mut admin);
}

#[test]
fn transaction_kills_connections_and_unloads() {
    let server = Server::start();
    let mut admin = server.client();
    let mut others: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for other in &mut others {
        assert_eq!(other.run("LOCK.RELEASE gate alice").code(), "NOTHELD");
    }
    let mut unload = || {
        for line in ["MULTI", "CLIENT KILL TYPE normal SKIPME yes", "MODULE UNLOAD lock"] {
            assert!(!admin.run(line).is_error(), "{line}");
        }
        admin.run("EXEC").items()[1] == "OK"
    };
    // Those that belong to I/O threads are closed at the end of the iteration.
    eventually("it is unloaded", &mut unload);
    assert!(!admin.run("CLIENT LIST").is_error());
    assert_eq!(server.client().run("PING"), "PONG");
}

#[test]
fn reloaded_module_finds_locks_and_events() {
    let server = Server::start();
    let mut alice = server.client();
    for round in 0..3 {
        for free in ["DEL door", "PEXPIRE door 20", "FLUSHALL"] {
            assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
            let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
            alice.run(free);
            assert_eq!(bob.reply(), 1, "{free} in round {round}");
            assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        }
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        assert_eq!(alice.run("LOCK.REENTER gate alice"), 1);
        // Waits with every outcome.
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 5000");
        let mut short = Waiter::send(&server, "LOCK.ACQUIRE door short BLOCK 20");
        drop(Waiter::start(&server, "LOCK.ACQUIRE door closed BLOCK 0"));
        assert_eq!(short.reply(), Reply::Nil);
        eventually("one waits", || waiters_of(&mut alice, "door") == 1);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);
        drop((bob, short));
        assert_unloads(&mut alice);
        assert_eq!([alice.run("GET door"), alice.run("HGET gate alice")], ["bob", "1"].map(Reply::text));
        alice.ok(&format!("MODULE LOAD {}", module_under_test().display()));
        assert_eq!(alice.run("LOCK.ACQUIRE door carol"), Reply::Nil);
        assert_eq!([alice.run("LOCK.RELEASE door bob"), alice.run("LOCK.RELEASE gate alice")], [0, 0].map(Reply::Int));
    }
}
