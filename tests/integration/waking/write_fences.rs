//! Where the server would refuse a client's write, or may not write at all, nothing is granted; nobody is left hanging
//! when it may again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::parallel::for_each;
use support::{LOST, OBSERVATION, Reply, Server, Setup, Waiter, Waiting, Way, eventually, never_within, waiters_of};

/// While writes are paused nothing is granted, although the lease ends; afterwards the first waiter is served.
#[track_caller]
fn nothing_is_granted_while_paused(way: Way, mode: &str, config: &str) {
    let server = Setup::new().config(config).start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 100"), 1);
    let end = alice.expires_at("door");
    let mut bob = way.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let mut gone = way.start(&server, "LOCK.ACQUIRE door gone BLOCK 200");
    alice.ok(&format!("CLIENT PAUSE 60000 {mode}"));
    assert_eq!(gone.reply(), Reply::Nil, "a time-out writes nothing and is answered");
    assert!(support::now_ms() > end, "the lease has ended meanwhile");
    assert!(bob.waits(), "not granted in a pause");
    alice.ok("CLIENT UNPAUSE");
    assert_eq!(bob.reply(), 1, "{way:?}");
    assert_eq!(alice.run("GET door"), "bob");
}

#[test]
fn a_lease_that_ends_in_a_pause_is_handed_over_after_it() {
    for_each(&Way::ALL, |&way| {
        nothing_is_granted_while_paused(way, "WRITE", "");
        nothing_is_granted_while_paused(way, "WRITE", "appendonly yes");
    });
}

#[test]
fn a_pause_that_ends_by_itself_is_enough() {
    for_each(&Way::ALL, |&way| {
        let server = Server::start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 50"), 1);
        let mut bob = way.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        let paused_at = support::now_ms();
        alice.ok("CLIENT PAUSE 300 WRITE");
        assert_eq!(bob.reply(), 1, "{way:?}");
        assert!(support::now_ms() >= paused_at + 300, "not in the pause");
    });
}

#[test]
fn a_request_during_a_pause_waits_for_its_end_and_is_then_served_in_order() {
    for way in Way::ALL {
        let server = Server::start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        let mut bob = way.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        alice.ok("CLIENT PAUSE 60000 WRITE");
        let mut release = Waiter::start(&server, "LOCK.RELEASE door alice");
        assert!(bob.waits());
        alice.ok("CLIENT UNPAUSE");
        assert_eq!(release.reply(), 0);
        assert_eq!(bob.reply(), 1, "{way:?}");
    }
}

#[test]
fn where_the_server_would_refuse_a_write_a_lease_that_ends_is_not_handed_over() {
    for_each(&Way::ALL, |&way| {
        for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
            let server = Server::start();
            let mut alice = server.client();
            assert_eq!(alice.run(&format!("{take} door alice PX 150")), 1);
            let mut bob = way.start(&server, &format!("{take} door bob BLOCK 0"));
            alice.ok("CONFIG SET min-replicas-to-write 1");
            assert_eq!(alice.run("SET other x").code(), "NOREPLICAS", "the fence is up");
            eventually("the lease ends", || alice.pttl("door") == -2);
            never_within(2 * OBSERVATION, "bob is served", || !bob.waits());
            alice.ok("CONFIG SET min-replicas-to-write 0");
            assert_eq!(bob.reply(), 1, "{way:?} {take}");
            assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        }
    });
}

#[test]
fn clients_that_wait_when_the_server_becomes_a_replica_are_told() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 200"), 1);
    let mut waiters: Vec<Waiting> = ["b", "c", "d", "e", "f"]
        .iter()
        .zip(Way::ALL.iter().cycle())
        .map(|(name, way)| way.start(&server, &format!("LOCK.ACQUIRE door {name} BLOCK 0")))
        .collect();
    alice.ok("REPLICAOF 127.0.0.1 1");
    for waiter in &mut waiters {
        match waiter.reply() {
            Reply::Closed => {}
            told => assert_eq!(told.code(), if matches!(waiter, Waiting::Blocked(_)) { "UNBLOCKED" } else { LOST }),
        }
    }
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door b").code(), "READONLY");
    assert_eq!(alice.run("LOCK.ACQUIRE gate b BLOCK 10").code(), "READONLY");
    assert_eq!(alice.run("LOCK.ACQUIRE gate b PX 1000 BLOCK 10 NOTIFY news").code(), "READONLY");
    assert_eq!(alice.run("LOCK.RELEASE door alice").code(), "READONLY");
    assert_eq!(waiters_of(&mut alice, "door"), 0);
    eventually("the lease ends", || alice.pttl("door") == -2);
    assert_eq!(alice.run("LOCK.INFO door").get("state"), "free");

    alice.ok("REPLICAOF NO ONE");
    for way in Way::ALL {
        assert_eq!(alice.run("LOCK.ACQUIRE door g"), 1);
        let mut last = way.start(&server, "LOCK.ACQUIRE door h BLOCK 0");
        assert_eq!(alice.run("LOCK.RELEASE door g"), 0);
        assert_eq!(last.reply(), 1, "{way:?}");
        assert_eq!(alice.run("LOCK.RELEASE door h"), 0);
    }
}

#[test]
fn a_replica_with_the_module_shows_the_holder_and_serves_after_its_promotion() {
    for_each(&Way::ALL, |&way| {
        let master = Setup::new().config("repl-diskless-sync-delay 0").start();
        let mut alice = master.client();
        let replica = Setup::new().config(&format!("replicaof 127.0.0.1 {}", master.port())).start();
        let mut on_replica = replica.client();
        eventually("the replica is in step", || {
            on_replica.info("replication", "master_link_status").as_deref() == Some("up")
        });
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = way.start(&master, "LOCK.ACQUIRE door bob PX 1000 BLOCK 0");
        assert_eq!(alice.run("WAIT 1 5000"), 1);
        let info = on_replica.run("LOCK.INFO door");
        assert_eq!(info.get("owner"), "alice");
        assert_eq!(info.get("waiters"), 0, "the line stands on the master");
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1, "{way:?}");
        let end = alice.expires_at("door");
        eventually("the hand-over arrives", || on_replica.run("GET door") == "bob");
        on_replica.ok("REPLICAOF NO ONE");
        let mut carol = way.start(&replica, "LOCK.ACQUIRE door carol BLOCK 0");
        assert_eq!(carol.reply(), 1, "at the end of the lease that was replicated");
        assert!(support::now_ms() >= end, "not before");
    });
}

/// A wait that ends while nothing may be written leaves nothing to do, and so nothing to watch the loop for.
#[test]
fn a_wait_that_times_out_in_a_pause_does_not_delay_a_later_hand_over() {
    for_each(&Way::ALL, |&way| {
        let server = Setup::new().config("lock.rejoin-grace-ms 0").start();
        let (mut alice, mut control) = (server.client(), server.client());
        assert_eq!(alice.run("LOCK.ACQUIRE gate alice"), 1);
        let mut bob = way.send(&server, "LOCK.ACQUIRE gate bob BLOCK 60");
        control.ok("CLIENT PAUSE 200 WRITE");
        assert_eq!(bob.reply(), Reply::Nil);
        // Longer than a standstill would have to be.
        sleep(Duration::from_millis(1200));
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 100"), 1);
        let asked = Instant::now();
        let mut carol = way.start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
        assert_eq!(carol.reply(), 1, "{way:?}");
        assert!(asked.elapsed() < Duration::from_millis(700), "the loop did not stand still: {:?}", asked.elapsed());
    });
}
