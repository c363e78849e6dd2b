//! However the connection of a session ends, its lock is released with all holds and the first in line is served at
//! once. The leases are far longer than any test, so nothing else can free a lock here.

use support::parallel::for_each;
use support::raw::{RawConnection, encode};
use support::sessions::{is_connected, session_of};
use support::{
    Client, OBSERVATION, Reply, Server, Setup, Waiter, Way, eventually, field, info_lock, never_within, waiters_of,
};

/// A mutex, and a re-entrant lock with several holds.
const TAKE: [&[&str]; 2] = [
    &["LOCK.ACQUIRE door alice PX 600000 SESSION"],
    &["LOCK.REENTER door alice PX 600000 SESSION", "LOCK.REENTER door alice", "LOCK.REENTER door alice"],
];

/// A session's connection is ended in some way while `bob` waits; he is served. The way is told the connection's id.
#[track_caller]
fn releases(end: impl Fn(&Server, RawConnection, i64) + Sync) {
    // A client that only asks may itself be idle for too long, one that listens as well may not.
    let ways = [[Way::Blocked, Way::OnOneConnection], [Way::OnOneConnection, Way::Blocked]];
    let cases: Vec<_> = TAKE.iter().zip(ways).collect();
    for_each(&cases, |(lines, ways)| {
        let server = Server::start();
        let mut control = server.client();
        control.ok("ACL SETUSER holder on nopass ~* +@all");
        let mut alice = RawConnection::open(server.port());
        assert_eq!(alice.run("AUTH holder any"), "+OK");
        for (line, holds) in lines.iter().zip(1..) {
            assert_eq!(alice.run(line), format!(":{holds}"));
        }
        let id: i64 = alice.run("CLIENT ID").trim_start_matches(':').parse().expect("an id");
        assert_eq!(session_of(&mut control, "door"), [id]);
        let mut bob = ways[0].start(&server, "LOCK.ACQUIRE door bob PX 90000 BLOCK 0");
        let carol = ways[1].start(&server, "LOCK.REENTER door carol BLOCK 0");
        end(&server, alice, id);
        assert_eq!(bob.reply(), 1, "{lines:?} {ways:?}");
        let mut control = server.client(); // The earlier one may have been idle for too long, too.
        assert_eq!(control.run("GET door"), "bob");
        assert_eq!(waiters_of(&mut control, "door"), 1, "only one is served");
        drop(carol);
        eventually("alice is gone", || !is_connected(&mut control, id));
        assert_eq!(info_lock(&mut control, "sessions"), 0);
    });
}

#[test]
fn close() {
    releases(|_, alice, _| drop(alice));
}

#[test]
fn quit() {
    releases(|_, mut alice, _| assert_eq!(alice.run("QUIT"), "+OK"));
}

#[test]
fn reset() {
    releases(|_, alice, _| alice.reset());
}

#[test]
fn half_close() {
    releases(|_, mut alice, _| {
        alice.half_close();
        // Our own direction stays open until the server has seen the other one end.
        alice.drain();
    });
}

#[test]
fn client_kill() {
    releases(|server, mut alice, id| {
        assert_eq!(server.client().run(&format!("CLIENT KILL ID {id}")), 1);
        alice.drain();
    });
}

#[test]
fn client_kill_of_itself() {
    releases(|_, mut alice, id| {
        alice.send(&format!("CLIENT KILL ID {id} SKIPME no"));
        alice.drain();
    });
}

#[test]
fn output_buffer_limit() {
    releases(|server, mut alice, _| {
        let mut control = server.client();
        // In replies that are small enough to be copied, for what is only referred to need not count.
        assert_eq!(control.run("SETRANGE text 9999 x"), 10_000);
        assert_eq!(control.call(&["CONFIG", "SET", "client-output-buffer-limit", "normal 1000000 0 0"]), "OK");
        alice.send_bytes(&encode("GET text").repeat(3000));
        // Only then is anything read, so that the server has to give up.
        eventually("alice has lost her lock", || field(&mut control, "door", "owner") != "alice");
        alice.drain();
    });
}

#[test]
fn idle_time_out() {
    releases(|server, mut alice, _| {
        server.client().ok("CONFIG SET timeout 1");
        alice.drain();
    });
}

#[test]
fn acl_deluser() {
    releases(|server, mut alice, _| {
        assert_eq!(server.client().run("ACL DELUSER holder"), 1);
        alice.drain();
    });
}

#[test]
fn a_protocol_error() {
    releases(|_, mut alice, _| {
        alice.send_bytes(b"*1\r\n!oops\r\n");
        alice.drain();
    });
}

#[test]
fn quit_right_behind_the_request() {
    let server = Server::start();
    let mut alice = server.client();
    let mut bob = server.client();
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        alice.send_together(&[&format!("{take} door alice PX 600000 SESSION"), "QUIT"]);
        assert_eq!(alice.receive(), 1, "{take}");
        assert_eq!(bob.run("LOCK.ACQUIRE door bob BLOCK 9000"), 1, "{take}");
        assert_eq!(bob.run("LOCK.RELEASE door bob"), 0);
        alice = server.client();
    }
}

/// The server executes what was sent before a socket was closed.
#[test]
fn closed_before_the_answer() {
    let server = Server::start();
    let mut bob = server.client();
    for round in 0..60 {
        let mut alice = RawConnection::open(server.port());
        alice.send(&format!("LOCK.ACQUIRE door alice-{round} PX 600000 SESSION"));
        if round % 2 == 0 {
            drop(alice);
        } else {
            alice.reset();
        }
        assert_eq!(bob.run("LOCK.ACQUIRE door bob BLOCK 9000"), 1, "round {round}");
        assert_eq!(bob.run("LOCK.RELEASE door bob"), 0);
    }
    eventually("no session is left", || info_lock(&mut bob, "sessions") == 0);
    eventually("the lock is free", || bob.run("EXISTS door") == 0);
}

#[test]
fn closed_while_it_waited() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), 1);
    let gone = Waiter::start(&server, "LOCK.ACQUIRE door gone PX 600000 SESSION BLOCK 0");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    drop(gone);
    drop(alice);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn granted_after_waiting_and_then_closed() {
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
        let mut alice = Waiter::start(&server, &format!("{take} door alice PX 600000 SESSION BLOCK 0"));
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 600000 SESSION BLOCK 0");
        let mut carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
        assert_eq!(session_of(&mut control, "door"), [] as [i64; 0], "the holder has none");
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(alice.reply(), 1, "{take}");
        assert_eq!(session_of(&mut control, "door"), [alice.id()]);
        drop(alice);
        assert_eq!(bob.reply(), 1, "one session after the other");
        assert_eq!(session_of(&mut control, "door"), [bob.id()]);
        drop(bob);
        assert_eq!(carol.reply(), 1);
        assert_eq!(session_of(&mut control, "door"), [] as [i64; 0]);
    }
}

#[test]
fn granted_in_a_transaction_and_then_closed() {
    let server = Server::start();
    let mut alice = server.client();
    alice.ok("MULTI");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), "QUEUED");
    assert_eq!(alice.run("LOCK.REENTER gate alice PX 600000 SESSION"), "QUEUED");
    assert_eq!(alice.run("EXEC"), Reply::list([Reply::Int(1), Reply::Int(1)]));
    assert_eq!(session_of(&mut server.client(), "door"), [alice.id()]);
    let mut waiters = ["door", "gate"].map(|key| Waiter::start(&server, &format!("LOCK.ACQUIRE {key} bob BLOCK 0")));
    drop(alice);
    for waiter in &mut waiters {
        assert_eq!(waiter.reply(), 1);
    }
}

#[test]
fn in_whatever_database() {
    let server = Server::start();
    let mut alice = server.client();
    for database in [3, 0, 15] {
        alice.ok(&format!("SELECT {database}"));
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), 1);
    }
    let mut holders = [3, 0, 15].map(|database| server.client_in(database));
    assert_eq!(holders[0].run("LOCK.RELEASE door alice"), 0);
    assert_eq!(holders[0].run("LOCK.ACQUIRE door bob"), 1);
    drop(alice);
    for holder in &mut holders[1..] {
        eventually("the lock is free", || holder.run("EXISTS door") == 0);
    }
    assert_eq!(holders[0].run("GET door"), "bob");
}

/// Both connections have asked for the lock with the same token.
#[track_caller]
fn shared(server: &Server) -> [Client; 2] {
    [server.client(), server.client()].map(|mut client| {
        assert_eq!(client.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), 1);
        client
    })
}

#[test]
fn of_two_connections_with_one_token_the_last_one_counts() {
    let server = Server::start();
    let mut control = server.client();
    let [first, second] = shared(&server);
    let (one, two) = (first.id(), second.id());
    assert_eq!(session_of(&mut control, "door"), [one, two]);
    assert_eq!(info_lock(&mut control, "sessions"), 1, "one session, whoever shares it");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    drop(first);
    eventually("the first is gone", || session_of(&mut control, "door") == [two]);
    never_within(OBSERVATION, "bob is served", || !bob.is_blocked());
    drop(second);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn two_connections_that_waited_with_one_token_share_the_session() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    let line = "LOCK.ACQUIRE door alice PX 600000 SESSION BLOCK 0";
    let mut both = [Waiter::start(&server, line), Waiter::start(&server, line)];
    // A third one shares the grant, but did not ask for a session.
    let mut without = Waiter::start(&server, "LOCK.ACQUIRE door alice PX 600000 BLOCK 0");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
    for waiter in both.iter_mut().chain([&mut without]) {
        assert_eq!(waiter.reply(), 1);
    }
    let ids = [both[0].id(), both[1].id()];
    assert_eq!(session_of(&mut control, "door"), ids);
    let [first, second] = both;
    drop(second);
    eventually("the second is gone", || session_of(&mut control, "door") == ids[..1]);
    assert!(bob.is_blocked());
    drop(first);
    assert_eq!(bob.reply(), 1);
    let mut without = without.into_ready();
    assert_eq!(without.run("LOCK.RELEASE door alice").code(), "NOTOWNER");
}

#[test]
fn both_connections_killed_at_once() {
    let server = Server::start();
    let [first, second] = shared(&server);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let mut control = server.client();
    let kill = [first, second].map(|client| format!("CLIENT KILL ID {}", client.id()));
    control.send_together(&[&kill[0], &kill[1]]);
    assert_eq!(bob.reply(), 1);
}

/// A connection is closed while the server does not take writes; its lock is released when it does again.
#[track_caller]
fn closed_while(refuse: &str, allow: &str) {
    let server = Setup::new().config("appendonly yes").start();
    let mut control = server.client();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), 1);
    let id = alice.id();
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    control.ok(refuse);
    drop(alice);
    eventually("alice is gone", || !is_connected(&mut control, id));
    never_within(OBSERVATION, "bob is served", || !bob.is_blocked());
    assert_eq!(control.run("GET door"), "alice");
    control.ok(allow);
    assert_eq!(bob.reply(), 1, "{refuse}");
}

#[test]
fn closed_in_a_pause_or_with_too_few_replicas() {
    closed_while("CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE");
    closed_while("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0");
}

#[test]
fn a_connection_that_holds_without_a_session_may_close() {
    let server = Server::start();
    let mut control = server.client();
    let mut alice = server.client();
    let id = alice.id();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice PX 600000 SESSION"), 1);
    let mut observer = server.client();
    let mut waiter = Waiter::send(&server, "LOCK.ACQUIRE gate bob BLOCK 0");
    drop(alice);
    assert_eq!(waiter.reply(), 1, "what is the connection's goes");
    eventually("alice is gone", || !is_connected(&mut control, id));
    assert_eq!(observer.run("GET door"), "alice", "what is not stays");
}
