//! What happens to the key of a lock without freeing it: the wait goes on against the new holder and the new lease.

use std::time::Duration;

use support::parallel::for_each;
use support::{
    Aof, Client, OBSERVATION, Reply, Server, Setup, Way, eventually, held_with, info_lock, never_within, waiters_of,
};

/// Long enough to do something with the lock and its waiter before it ends.
const FIRST_LEASE_MS: u64 = 150;

/// The server does not look for expired keys by itself, so that only the module can see that a lease has ended.
fn without_the_servers_expiry(client: &mut Client) {
    client.ok("DEBUG SET-ACTIVE-EXPIRE 0");
}

/// How often a lease that ends too soon, because the machine is busy, is given once more.
const ATTEMPTS: usize = 20;

/// Runs `lines`, which leave `door` held; bob waits on until the new lease ends, or else until the key is deleted. Each
/// way to wait has a database of its own.
#[track_caller]
fn waits_on(first_lease_ms: u64, lines: &[&str]) {
    let server = Server::start();
    without_the_servers_expiry(&mut server.client());
    for_each(&Way::in_databases(), |&(db, way)| {
        let in_time = (0..ATTEMPTS).any(|_| bob_waits_on(&server, db, way, first_lease_ms, lines));
        assert!(in_time, "{lines:?}: the first lease has always ended too soon");
    });
}

/// Whether that was done before the first lease had ended.
#[track_caller]
fn bob_waits_on(server: &Server, db: u32, way: Way, first_lease_ms: u64, lines: &[&str]) -> bool {
    let mut alice = server.client_in(db);
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door alice PX {first_lease_ms}")), 1);
    let first_end = alice.expires_at("door");
    let mut bob = way.send_in(server, db, "LOCK.ACQUIRE door bob BLOCK 0");
    while !bob.waits() && support::now_ms() < first_end {}
    let replies: Vec<Reply> = lines.iter().map(|line| alice.run(line)).collect();
    let end = alice.expires_at("door");
    if support::now_ms() >= first_end {
        drop(bob);
        eventually("bob is gone", || waiters_of(&mut alice, "door") == 0);
        alice.ok("FLUSHDB");
        return false;
    }
    assert!(!replies.iter().any(Reply::is_error), "{lines:?}: {replies:?}");
    assert_ne!(end, first_end, "{lines:?} changed nothing");
    if end == -1 {
        let past_the_first = first_end - support::now_ms() + 50;
        let span = Duration::from_millis(past_the_first.unsigned_abs());
        never_within(span, "bob is served", || !bob.waits());
        assert_eq!(alice.run("DEL door"), 1);
        assert_eq!(bob.reply(), 1, "{way:?} {lines:?}");
    } else {
        assert_eq!(bob.reply(), 1, "{way:?} {lines:?}");
        let late = support::now_ms() - end;
        assert!((0..1000).contains(&late), "{way:?} {lines:?}: {late} ms after the end of the new lease");
    }
    true
}

#[test]
fn persist_lets_the_wait_go_on() {
    waits_on(FIRST_LEASE_MS, &["PERSIST door"]);
}

#[test]
fn a_longer_lease_lets_the_wait_go_on_until_its_end() {
    waits_on(FIRST_LEASE_MS, &["PEXPIRE door 450"]);
    waits_on(FIRST_LEASE_MS, &["LOCK.EXTEND door alice PX 450"]);
    waits_on(FIRST_LEASE_MS, &["LOCK.ACQUIRE door alice PX 450"]);
    waits_on(FIRST_LEASE_MS, &["GETEX door PX 450"]);
}

#[test]
fn a_shorter_lease_ends_the_wait_sooner() {
    waits_on(600_000, &["PEXPIRE door 80"]);
    waits_on(600_000, &["LOCK.EXTEND door alice PX 80"]);
    waits_on(600_000, &["GETEX door PX 80"]);
}

#[test]
fn a_lease_given_to_a_lock_that_had_none_ends_the_wait() {
    waits_on(600_000, &["PERSIST door", "PEXPIRE door 80"]);
}

#[test]
fn set_over_the_lock_lets_the_wait_go_on_against_the_new_holder() {
    waits_on(FIRST_LEASE_MS, &["SET door carol"]);
    waits_on(FIRST_LEASE_MS, &["SET door carol PX 450"]);
    waits_on(600_000, &["SET door carol PX 80"]);
    waits_on(600_000, &["DEL other", "PSETEX door 80 carol"]);
}

#[test]
fn another_key_put_over_the_lock_lets_the_wait_go_on_against_the_new_holder() {
    waits_on(FIRST_LEASE_MS, &["SET other carol", "RENAME other door"]);
    waits_on(FIRST_LEASE_MS, &["SET other carol PX 450", "RENAME other door"]);
    waits_on(600_000, &["SET other carol PX 80", "RENAME other door"]);
    waits_on(FIRST_LEASE_MS, &["SET other carol", "COPY other door REPLACE"]);
    waits_on(600_000, &["SET other carol PX 80", "COPY other door REPLACE"]);
}

#[test]
fn restore_over_the_lock_lets_the_wait_go_on_against_the_new_holder() {
    let server = Server::start();
    without_the_servers_expiry(&mut server.client());
    for_each(&Way::in_databases(), |&(db, way)| {
        for (ttl, lease_ms) in [("0", 250), ("450", 250), ("80", 600_000)] {
            let mut alice = server.client_in(db);
            alice.ok("SET other carol");
            let dump = alice.run("DUMP other");
            assert_eq!(alice.run(&format!("LOCK.ACQUIRE door alice PX {lease_ms}")), 1);
            let mut bob = way.start_in(&server, db, "LOCK.ACQUIRE door bob BLOCK 0");
            let restored = alice.call(&[b"RESTORE".as_slice(), b"door", ttl.as_bytes(), dump.bytes(), b"REPLACE"]);
            assert_eq!(restored, "OK");
            let end = alice.expires_at("door");
            if end == -1 {
                never_within(2 * OBSERVATION, "bob is served", || !bob.waits());
                assert_eq!(alice.run("LOCK.RELEASE door carol"), 0);
            }
            assert_eq!(bob.reply(), 1, "{way:?}");
            assert!(support::now_ms() >= end);
            assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        }
    });
}

#[test]
fn a_renamed_lock_keeps_its_holder_and_meets_the_waiters_of_its_new_name() {
    for_each(&Way::IN_LINE, |&ways| {
        let server = Server::start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        assert_eq!(alice.run("LOCK.ACQUIRE gate carol"), 1);
        let mut at_door = ways[0].start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        let mut at_gate = ways[1].start(&server, "LOCK.ACQUIRE gate dave BLOCK 0");
        alice.ok("RENAME door gate");
        assert_eq!(at_door.reply(), 1, "{ways:?}");
        never_within(OBSERVATION, "dave is served", || !at_gate.waits());
        assert_eq!(alice.run("LOCK.RELEASE gate carol").code(), "NOTOWNER");
        assert_eq!(alice.run("LOCK.RELEASE gate alice"), 0);
        assert_eq!(at_gate.reply(), 1, "{ways:?}");
    });
}

/// A key of another type is nobody's lock, but it is in the way: the wait goes on until it is gone.
#[test]
fn a_key_of_another_type_in_the_way_lets_the_wait_go_on() {
    for_each(&Way::ALL, |&way| {
        for put in ["LPUSH door x", "ZADD door 1 x", "XADD door * x y", "SADD door x", "HSET door a 1 b 1"] {
            let (_server, mut alice, mut bob) = held_with(way, &Setup::new());
            alice.send_together(&["MULTI", "DEL door", put, "EXEC"]);
            let replies: Vec<Reply> = (0..4).map(|_| alice.receive()).collect();
            assert_eq!(replies[3].items().len(), 2, "{put}: {replies:?}");
            never_within(OBSERVATION, put, || info_lock(&mut alice, "waiters") == 0);
            assert_eq!(alice.run("DEL door"), 1);
            assert_eq!(bob.reply(), 1, "{way:?} {put}");
        }
    });
}

#[test]
fn a_reload_keeps_the_holder_and_the_wait_goes_on() {
    for_each(&Way::ALL, |&way| {
        for (config, reload) in [("", "DEBUG RELOAD"), (Aof::CONFIG, "DEBUG LOADAOF")] {
            for lease in ["", "PX 1500"] {
                let server = Setup::new().config(config).start();
                let mut alice = server.client();
                without_the_servers_expiry(&mut alice);
                assert_eq!(alice.run(&format!("LOCK.ACQUIRE door alice {lease}")), 1);
                let end = alice.expires_at("door");
                let mut bob = way.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
                alice.ok(reload);
                assert!(bob.waits(), "{reload}: the holder is still there");
                assert_eq!(alice.run("GET door"), "alice");
                assert_eq!(alice.expires_at("door"), end);
                if lease.is_empty() {
                    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
                }
                assert_eq!(bob.reply(), 1, "{way:?} {reload} {lease}");
                assert!(support::now_ms() >= end);
            }
        }
    });
}

#[test]
fn swapdb_brings_another_holder_and_the_wait_goes_on() {
    for_each(&Way::ALL, |&way| {
        let server = Server::start();
        let (mut zero, mut one) = (server.client(), server.client_in(1));
        without_the_servers_expiry(&mut zero);
        assert_eq!(zero.run("LOCK.ACQUIRE door alice"), 1);
        assert_eq!(one.run("LOCK.ACQUIRE door carol PX 250"), 1);
        let end = one.expires_at("door");
        let mut bob = way.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        zero.ok("SWAPDB 0 1");
        assert_eq!(bob.reply(), 1, "at the end of the lease that came");
        assert!(support::now_ms() >= end, "not before");
        assert_eq!(one.run("GET door"), "alice");
    });
}
