//! Sessions with GRACE: when the last connection has closed, the lock is held on for so long, and who comes back in time has it
//! still.

use std::time::Duration;

use support::listener::Listener;
use support::parallel::for_each;
use support::replicas::{master, replica_of, replicated};
use support::sessions::session_of;
use support::{Client, Reply, Server, Waiter, eventually, field, info_lock, never_within, now_ms, waiters_of};

const TAKE: [&str; 3] = ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"];

const NO_SESSION: [i64; 0] = [];

/// How much later than due the server may do something on a busy machine.
const LATE_MS: i64 = 500;

/// Closes a connection, and returns within what times the server must have noticed it.
#[track_caller]
fn close(server: &Server, client: Client) -> (i64, i64) {
    let mut control = server.client();
    let (id, begin) = (client.id(), now_ms());
    drop(client);
    eventually("the connection is closed", || !support::sessions::is_connected(&mut control, id));
    (begin, now_ms())
}

#[test]
fn lock_is_held_for_grace_period_and_goes_to_next_waiter() {
    for_each(&TAKE, |take| {
        let server = Server::start();
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("{take} door alice PX 60000 SESSION GRACE 700")), 1);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
        let (begin, end) = close(&server, alice);
        let mut control = server.client();
        eventually("the lease is cut", || control.expires_at("door") <= end + 700);
        let lease_end = control.expires_at("door");
        assert!(lease_end == -2 || lease_end >= begin + 700, "{take}: {begin} {end} {lease_end}");
        assert_eq!(info_lock(&mut control, "sessions"), 0, "{take}");
        assert_eq!(info_lock(&mut control, "grace_periods"), 1, "{take}");
        assert_eq!(bob.reply(), 1, "{take}");
        let granted = now_ms();
        assert!((begin + 700..end + 700 + LATE_MS).contains(&granted), "{take}: {begin} {end} {granted}");
    });
}

#[test]
fn client_that_comes_back_in_time_has_its_lock() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.REENTER door alice PX 60000 HOLD 1 SESSION GRACE 30000"), 1);
    assert_eq!(alice.run("LOCK.REENTER door alice HOLD 2"), 2);
    let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    close(&server, alice);
    let mut again = server.client();
    eventually("the session ends", || session_of(&mut again, "door") == NO_SESSION);
    assert_eq!(again.run("LOCK.REENTER door alice PX 60000 HOLD 2 SESSION"), 2);
    let id = again.id();
    assert_eq!(session_of(&mut again, "door"), [id]);
    assert!(again.pttl("door") > 40_000, "a repeat lengthens the lease");
    assert!(bob.is_blocked());
    // The new session was asked for without GRACE.
    close(&server, again);
    let mut bob = bob;
    assert_eq!(bob.reply(), 1);
}

#[test]
fn repeat_without_session_and_extend_lengthen_the_lease() {
    let server = Server::start();
    for (line, least) in [("LOCK.ACQUIRE door alice PX 50000", 1), ("LOCK.EXTEND door alice PX 50000", 40_000)] {
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000 SESSION GRACE 20000"), 1);
        let (_, end) = close(&server, alice);
        let mut again = server.client();
        eventually("the lease is cut", || again.expires_at("door") <= end + 20_000);
        assert!(again.run(line).int() >= least, "{line}");
        assert!(again.pttl("door") > 40_000, "{line}");
        assert_eq!(session_of(&mut again, "door"), NO_SESSION, "{line}");
        assert_eq!(again.run("LOCK.RELEASE door alice"), 0, "{line}");
    }
}

#[test]
fn longest_grace_of_copies_counts_from_the_last_close() {
    let server = Server::start();
    let mut connections = Vec::new();
    for option in ["GRACE 30000", "GRACE 10", ""] {
        let mut client = server.client();
        assert_eq!(client.run(&format!("LOCK.ACQUIRE door alice PX 60000 SESSION {option}")), 1);
        connections.push(client);
    }
    let mut control = server.client();
    let last = connections.pop().expect("three connections");
    connections.into_iter().for_each(|client| _ = close(&server, client));
    assert!(control.pttl("door") > 30_000, "one connection is open");
    let (begin, end) = close(&server, last);
    eventually("the lease is cut", || control.expires_at("door") <= end + 30_000);
    assert!(control.expires_at("door") >= begin + 30_000);
}

#[test]
fn lock_without_lease_gets_one() {
    let server = Server::start();
    let mut control = server.client();
    for take in TAKE {
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("{take} door alice PX 60000 SESSION GRACE 400")), 1);
        assert_eq!(control.run("PERSIST door"), 1);
        if take == "LOCK.SHARE" {
            assert_eq!(control.run("ZADD door XX CH inf alice"), 1);
        }
        close(&server, alice);
        eventually("the lock is free", || control.run("EXISTS door") == 0);
    }
}

#[test]
fn release_and_del_end_the_grace_period() {
    let server = Server::start();
    for line in ["LOCK.RELEASE door alice", "DEL door"] {
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000 SESSION GRACE 60000"), 1);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        close(&server, alice);
        let mut control = server.client();
        control.run(line);
        assert_eq!(bob.reply(), 1, "{line}");
        assert_eq!(control.run("LOCK.RELEASE door bob"), 0, "{line}");
    }
}

#[test]
fn grant_after_a_wait_has_its_grace_period() {
    let server = Server::start();
    let mut listener = Listener::start(&server, "news");
    for notify in ["", "NOTIFY news"] {
        let mut holder = server.client();
        assert_eq!(holder.run("LOCK.ACQUIRE door holder PX 60000"), 1);
        let mut alice = server.client();
        let line = format!("LOCK.ACQUIRE door alice PX 60000 BLOCK 0 SESSION GRACE 20000 {notify}");
        let alice = if notify.is_empty() {
            let waiter = Waiter::start_on(&server, alice, &support::bytes_of(&line));
            assert_eq!(holder.run("LOCK.RELEASE door holder"), 0);
            let (reply, client) = waiter.into_client();
            assert_eq!(reply, 1);
            client
        } else {
            assert_eq!(alice.run(&line), "WAITING");
            assert_eq!(holder.run("LOCK.RELEASE door holder"), 0);
            listener.hears("granted", "alice", "door");
            alice
        };
        let (begin, end) = close(&server, alice);
        eventually("the lease is cut", || holder.expires_at("door") <= end + 20_000);
        assert!(holder.expires_at("door") >= begin + 20_000, "{notify}");
        assert_eq!(holder.run("LOCK.RELEASE door alice"), 0, "{notify}");
    }
}

#[test]
fn pause_delays_the_cut_but_not_the_end() {
    let server = Server::start();
    let mut control = server.client();
    let take = |grace: i64| {
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE door{grace} alice PX 60000 SESSION GRACE {grace}")), 1);
        alice
    };
    let (short, long) = (take(100), take(30_000));
    control.ok("CLIENT PAUSE 1000 WRITE");
    let (begin, end) = (close(&server, short), close(&server, long));
    never_within(Duration::from_millis(300), "a lock is written", || control.run("EXISTS door100") == 0);
    eventually("the pause and the shorter period are over", || control.run("EXISTS door100") == 0);
    assert!(now_ms() >= begin.0 + 600, "the pause was not awaited");
    eventually("the lease is cut", || control.expires_at("door30000") <= end.1 + 30_000);
    assert!(control.expires_at("door30000") >= end.0 + 30_000);
}

#[test]
fn replicas_and_aof_get_the_end_of_the_grace_period() {
    let master = master("appendonly yes");
    let replica = replica_of(&master);
    let mut control = master.client();
    let mut alice = master.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000 SESSION GRACE 30000"), 1);
    let (begin, end) = close(&master, alice);
    eventually("the lease is cut", || control.expires_at("door") <= end + 30_000);
    let lease_end = control.expires_at("door");
    assert!(lease_end >= begin + 30_000);
    replicated(&mut control, "mark");
    assert_eq!(replica.client().expires_at("door"), lease_end);
    control.ok("DEBUG LOADAOF");
    assert_eq!(control.expires_at("door"), lease_end);
    assert_eq!(control.run("LOCK.EXTEND door alice PX 50000").int(), 50_000);
}

#[test]
fn grace_period_does_not_hold_up_unloading() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000 SESSION GRACE 30000"), 1);
    let mut control = server.client();
    assert!(matches!(control.run("MODULE UNLOAD lock"), Reply::Error(_)), "a session holds it up");
    let (_, end) = close(&server, alice);
    eventually("the lease is cut", || control.expires_at("door") <= end + 30_000);
    control.ok("MODULE UNLOAD lock");
    assert_eq!(control.run("GET door"), "alice");
}

#[test]
fn grace_needs_session_and_is_at_most_the_lease() {
    let server = Server::start();
    let mut client = server.client();
    for take in TAKE {
        let mut refused = |options: &str, text: &str| {
            let reply = client.run(&format!("{take} door alice {options}"));
            let name = take.to_lowercase();
            assert_eq!(reply, Reply::Error(text.replace("COMMAND", &name)), "{take} {options}");
        };
        refused("PX 1000 GRACE 100", "ERR GRACE needs SESSION");
        refused("GRACE 100 SESSION", "ERR a session needs a lease, EX or PX");
        for grace in ["0", "-1", "1001"] {
            refused(&format!("PX 1000 SESSION GRACE {grace}"), "ERR invalid expire time in 'COMMAND' command");
        }
        refused("PX 1000 SESSION GRACE x", "ERR value is not an integer or out of range");
        refused("PX 1000 SESSION GRACE", "ERR syntax error");
        refused("PX 1000 SESSION GRACE 1 GRACE 1", "ERR syntax error");
    }
    assert_eq!(client.run("LOCK.RELEASE door alice GRACE 1"), Reply::Error("ERR syntax error".to_owned()));
    assert_eq!(client.run("EXISTS door"), 0);
}

/// Connections are cut again and again while others contend for the locks. Who comes back in time never loses its lock; who stays
/// away loses it when its grace period is over.
#[test]
fn thousand_cuts_under_load() {
    const LOCKS: usize = 20;
    const CUTS: usize = 50;
    let server = Server::start();
    for_each(&(0..LOCKS).collect::<Vec<_>>(), |number| {
        let take = format!("LOCK.ACQUIRE door{number} alice{number} PX 60000 SESSION GRACE 30000");
        let mut rival = Waiter::send(&server, &format!("LOCK.ACQUIRE door{number} rival PX 60000 BLOCK 0"));
        assert_eq!(rival.reply(), 1);
        let mut rival = rival.into_ready();
        assert_eq!(rival.run(&format!("LOCK.RELEASE door{number} rival")), 0);
        let mut alice = server.client();
        assert_eq!(alice.run(&take), 1);
        let rival =
            Waiter::start_on(&server, rival, &support::bytes_of(&format!("LOCK.ACQUIRE door{number} rival BLOCK 0")));
        for cut in 0..CUTS {
            drop(std::mem::replace(&mut alice, server.client()));
            assert_eq!(alice.run("PING"), "PONG");
            assert_eq!(alice.run(&format!("GET door{number}")), format!("alice{number}").as_str(), "cut {cut}");
            assert_eq!(alice.run(&take), 1, "cut {cut}");
            assert!(alice.run(&format!("LOCK.FENCE door{number} alice{number} counter{number}")).int() > 0);
        }
        assert!(rival.is_blocked());
        assert_eq!(alice.run(&format!("LOCK.RELEASE door{number} alice{number}")), 0);
        let mut rival = rival;
        assert_eq!(rival.reply(), 1);
        let mut rival = rival.into_ready();
        assert_eq!(rival.run(&format!("LOCK.RELEASE door{number} rival")), 0);
        let mut alice = server.client();
        assert_eq!(alice.run(&take.replace("30000", "100")), 1);
        let mut rival =
            Waiter::start_on(&server, rival, &support::bytes_of(&format!("LOCK.ACQUIRE door{number} rival BLOCK 0")));
        let (begin, end) = close(&server, alice);
        assert_eq!(rival.reply(), 1);
        assert!((begin + 100..end + 100 + LATE_MS).contains(&now_ms()), "held beyond its grace period, or cut short");
    });
    let mut control = server.client();
    assert_eq!((info_lock(&mut control, "sessions"), waiters_of(&mut control, "door0")), (0, 0));
    assert_eq!(field(&mut control, "door0", "owner"), "rival");
}
