//! Ends of a connection for which a client of its own kind is needed. The others are in tests/scenarios/sessions.

use support::raw::{RawConnection, encode};
use support::sessions::{is_renewed, session_of};
use support::{Server, Way, eventually, field, info_lock};

/// Ends the connection of a session while clients wait. The first of them is granted the lock.
#[track_caller]
fn releases(end: impl Fn(&Server, RawConnection)) {
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        let server = Server::start();
        let mut control = server.client();
        let mut alice = RawConnection::open(server.port());
        assert_eq!(alice.run(&format!("{take} door alice PX 600000 SESSION")), ":1");
        assert_eq!(alice.run("LOCK.REENTER door alice").starts_with(":2"), take == "LOCK.REENTER");
        assert_eq!(session_of(&mut control, "door").len(), 1);
        let mut bob = Way::Blocked.start(&server, "LOCK.ACQUIRE door bob PX 90000 BLOCK 0");
        let mut carol = Way::OnOneConnection.start(&server, "LOCK.REENTER door carol BLOCK 0");
        end(&server, alice);
        assert_eq!(bob.reply(), 1, "{take}");
        assert_eq!(control.run("GET door"), "bob");
        assert!(carol.waits());
        eventually("the session has ended", || info_lock(&mut control, "sessions") == 0);
    }
}

#[test]
fn reset_releases_lock() {
    releases(|_, alice| alice.reset());
}

/// The client's own direction stays open until the server has seen the other one end.
#[test]
fn half_close_releases_lock() {
    releases(|_, mut alice| {
        alice.half_close();
        alice.drain();
    });
}

#[test]
fn protocol_error_releases_lock() {
    releases(|_, mut alice| {
        alice.send_bytes(b"*1\r\n!oops\r\n");
        alice.drain();
    });
}

#[test]
fn output_buffer_limit_releases_lock() {
    releases(|server, mut alice| {
        let mut control = server.client();
        // Replies that are small enough to be copied. Replies that are only referred to may not count.
        assert_eq!(control.run("SETRANGE text 9999 x"), 10_000);
        assert_eq!(control.call(&["CONFIG", "SET", "client-output-buffer-limit", "normal 1000000 0 0"]), "OK");
        alice.send_bytes(&encode("GET text").repeat(3000));
        // Nothing is read before that.
        eventually("alice has lost the lock", || field(&mut control, "door", "owner") != "alice");
        alice.drain();
    });
}

/// The server executes the commands that it received before a socket was closed.
#[test]
fn connection_closed_before_reply_releases_lock() {
    let server = Server::start();
    let mut bob = server.client();
    for attempt in 0..60 {
        let mut alice = RawConnection::open(server.port());
        alice.send(&format!("LOCK.ACQUIRE door alice-{attempt} PX 600000 SESSION"));
        if attempt % 2 == 0 {
            drop(alice);
        } else {
            alice.reset();
        }
        assert_eq!(bob.run("LOCK.ACQUIRE door bob BLOCK 9000"), 1, "attempt {attempt}");
        assert_eq!(bob.run("LOCK.RELEASE door bob"), 0);
    }
    eventually("no session is left", || info_lock(&mut bob, "sessions") == 0);
    eventually("the lock is free", || bob.run("EXISTS door") == 0);
}

#[test]
fn session_prevents_unload() {
    let server = Server::start();
    let (mut alice, mut control) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.REENTER door alice PX 500 SESSION"), 1);
    assert_eq!(control.run("LOCK.ACQUIRE gate alice PX 500"), 1);
    for _ in 0..50 {
        assert!(control.run("MODULE UNLOAD lock").error().starts_with("ERR Error unloading module"));
    }
    let why = "module lock is not unloaded: locks belong to connections";
    eventually("the log says why", || server.log().contains(why));
    is_renewed(&mut control, "door");
    drop(alice);
    eventually("the module can be unloaded", || control.run("MODULE UNLOAD lock") == "OK");
    assert_eq!(control.run("EXISTS door"), 0, "the session ended with its connection");
}
