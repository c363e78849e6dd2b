//! Ends of a connection that need a client of their own kind. The other ends are in tests/scenarios.

use support::listener::Listener;
use support::raw::{RawConnection, encode};
use support::{Server, Waiter, eventually, field, info_lock, waiters_of};

/// Ends a connection that has a lock in a session, and waits for a message about another lock. The lock is released, and the wait
/// is withdrawn.
#[track_caller]
fn ends_session_and_wait(end: impl Fn(&Server, RawConnection)) {
    let server = Server::start();
    let (mut control, mut listener) = (server.client(), Listener::start(&server, "news"));
    assert_eq!(control.run("LOCK.ACQUIRE gate holder"), 1);
    let mut alice = RawConnection::open(server.port());
    assert_eq!(alice.run("LOCK.REENTER door alice PX 600000 SESSION"), ":1");
    assert_eq!(alice.run("LOCK.REENTER door alice"), ":2");
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice PX 600000 BLOCK 0 NOTIFY news"), "+WAITING");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    end(&server, alice);
    assert_eq!(bob.reply(), 1);
    assert_eq!(control.run("GET door"), "bob");
    eventually("the session has ended", || info_lock(&mut control, "sessions") == 0);
    eventually("the wait has ended", || waiters_of(&mut control, "gate") == 0);
    listener.has_heard_nothing_else();
}

#[test]
fn reset_ends_session_and_wait() {
    ends_session_and_wait(|_, alice| alice.reset());
}

/// The client's own direction stays open until the server has seen the other one end.
#[test]
fn half_close_ends_session_and_wait() {
    ends_session_and_wait(|_, mut alice| {
        alice.half_close();
        alice.drain();
    });
}

#[test]
fn protocol_error_ends_session_and_wait() {
    ends_session_and_wait(|_, mut alice| {
        alice.send_bytes(b"*1\r\n!oops\r\n");
        alice.drain();
    });
}

#[test]
fn output_buffer_limit_ends_session_and_wait() {
    ends_session_and_wait(|server, mut alice| {
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

#[test]
fn half_close_ends_blocked_wait() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = RawConnection::open(server.port());
    bob.send("LOCK.ACQUIRE door bob BLOCK 0");
    eventually("bob waits", || waiters_of(&mut control, "door") == 1);
    bob.half_close();
    eventually("no client waits", || waiters_of(&mut control, "door") == 0);
}
