//! When the module is not unloaded because the server would crash, and that it does not crash otherwise.

use support::{Client, Reply, Server, eventually};

#[track_caller]
fn assert_refused(admin: &mut Client, server: &Server, reason: &str) {
    let refused = admin.run("MODULE UNLOAD lock");
    assert!(refused.is_error(), "{refused:?}");
    let log = server.log();
    assert!(log.contains(reason), "no {reason:?} in the log:\n{log}");
    assert_eq!(admin.run("LOCK.ACQUIRE door alice"), 1, "it goes on working");
    assert_eq!(admin.run("LOCK.RELEASE door alice"), 0);
}

/// What servers look at commands for that are gone.
#[track_caller]
fn assert_unloads(admin: &mut Client) {
    eventually("it is unloaded", || admin.run("MODULE UNLOAD lock") == "OK");
    assert!(admin.run("LOCK.INFO door").error().starts_with("ERR unknown command"));
    assert!(!admin.run("ACL LIST").is_error());
    assert!(!admin.run("CLIENT LIST").is_error());
}

#[test]
fn acl_rule_prevents_unload() {
    let server = Server::start();
    let mut admin = server.client();
    for rule in ["+lock.acquire", "+@all -lock.info", "(+LOCK.EXTEND ~door)"] {
        let words: Vec<_> = ["ACL", "SETUSER", "bob"].into_iter().chain(rules_in(rule)).collect();
        assert_eq!(admin.call(&words), "OK", "{rule}");
        // Valkey 9.1 sees to that itself, in words of its own.
        assert_refused(&mut admin, &server, " ACL ");
        assert_eq!(admin.run("ACL DELUSER bob"), 1);
    }
    admin.ok("ACL SETUSER lock.bob on nopass ~lock.* +get");
    assert_unloads(&mut admin);
}

/// A selector is one word.
fn rules_in(text: &str) -> Vec<&str> {
    if text.starts_with('(') { vec![text] } else { text.split(' ').collect() }
}

#[test]
fn last_command_of_connection_prevents_unload() {
    let server = Server::start();
    let (mut admin, mut bob) = (server.client(), server.client());
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

#[test]
fn transaction_kills_connections_and_unloads() {
    let server = Server::start();
    let mut admin = server.client();
    let mut others: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for other in &mut others {
        assert_eq!(other.run("LOCK.RELEASE gate nobody").code(), "NOTHELD");
    }
    let mut unload = || {
        for line in ["MULTI", "CLIENT KILL TYPE normal SKIPME yes", "MODULE UNLOAD lock"] {
            assert!(!admin.run(line).is_error(), "{line}");
        }
        admin.run("EXEC").items()[1] == "OK"
    };
    // Those that belong to I/O threads are closed at the end of the round.
    eventually("it is unloaded", &mut unload);
    assert!(!admin.run("CLIENT LIST").is_error());
    assert_eq!(server.client().run("PING"), "PONG");
}

#[test]
fn user_name_of_any_bytes_prevents_unload() {
    let server = Server::start();
    let (mut admin, mut bob) = (server.client(), server.client());
    let user: [&[u8]; 8] = [b"ACL", b"SETUSER", b"b\xf6b", b"on", b"nopass", b"~*", b"&*", b"+@all"];
    assert_eq!(admin.call(&user), "OK");
    assert_eq!(bob.call(&[b"AUTH".as_slice(), b"b\xf6b", b"any"]), "OK");
    assert_eq!(bob.run("LOCK.ACQUIRE gate bob"), 1);
    assert_refused(&mut admin, &server, "module lock is not unloaded: connection ");
}

#[test]
fn pattern_of_any_bytes_prevents_unload() {
    let server = Server::start();
    let mut admin = server.client();
    let user: [&[u8]; 7] = [b"ACL", b"SETUSER", b"bob", b"on", b"nopass", b"~\xf6*", b"+lock.acquire"];
    assert_eq!(admin.call(&user), "OK");
    assert_refused(&mut admin, &server, " ACL ");
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
