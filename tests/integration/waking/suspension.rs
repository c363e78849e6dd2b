//! A server that stalled. A scenario cannot act during a stall, nor repeat a measurement.

use std::thread;
use std::time::{Duration, Instant};

use support::cluster::Cluster;
use support::parallel::for_each;
use support::process::Process;
use support::replicas::{in_time, is_master, master, replica_of, replicated};
use support::staggered::Staggered;
use support::{
    Client, LOST, Library, OBSERVATION, Reply, Server, Setup, Waiter, Waiting, Way, eventually, info_lock,
    never_within, patient,
};

/// Longer than the shortest stall that suspends the module, and than a replica may be silent with a lag of a second.
const LONG_STALL: Duration = Duration::from_millis(2200);

/// Suspends the module.
const STALL: Duration = Duration::from_millis(1500);

/// Does not suspend the module.
const SHORT_STALL: Duration = Duration::from_millis(600);

/// How long after a stall the module is suspended.
const SUSPENDED_MS: std::ops::Range<u128> = 1000..2500;

/// The most that something may be late that is not suspended.
const AT_ONCE: Duration = Duration::from_millis(200);

/// Attempts at a fair measurement on a busy machine.
const ATTEMPTS: usize = 4;

/// Stops the server for this time and runs `action`. Returns when the server resumed.
#[track_caller]
fn stall(server: &Server, length: Duration, action: impl FnOnce()) -> Instant {
    let process = Process::of(server);
    process.stop();
    let stopped = Instant::now();
    action();
    thread::sleep(length.saturating_sub(stopped.elapsed()));
    process.resume();
    Instant::now()
}

fn grants(client: &mut Client) -> i64 {
    info_lock(client, "granted_after_waiting")
}

/// What happens to the only replica during the stall.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Promoted,
    Killed,
    Silent,
}

const FATES: [Fate; 3] = [Fate::Promoted, Fate::Killed, Fate::Silent];

/// How the locks are held whose leases end during the stall.
type Begin = fn(&Server, &str, i64, i64) -> Staggered;

/// The master needs one responding replica for writes, so it grants nothing after the stall.
#[track_caller]
fn master_without_replica_grants_nothing(fate: Fate, begin: Begin) {
    let old = master("min-replicas-to-write 1\nmin-replicas-max-lag 1");
    let mut replica = replica_of(&old);
    let mut client = old.client();
    in_time("the master takes writes", || !client.run("SET other x").is_error());
    // The leases end during the stall, and the first not before it, however busy the machine is.
    let locks = begin(&old, "", 8, 250);
    let silent = Process::of(&replica);
    stall(&old, LONG_STALL, || match fate {
        Fate::Promoted => {
            replica.client().ok("REPLICAOF NO ONE");
            assert!(is_master(&replica));
        }
        Fate::Killed => Process::kill(&mut replica),
        Fate::Silent => silent.stop(),
    });
    let mut refused = false;
    never_within(3 * LONG_STALL / 2, &format!("{fate:?}: the old master grants"), || {
        refused |= client.run("SET other x").is_error();
        grants(&mut client) > 0
    });
    assert!(refused, "{fate:?}: it still accepts writes");
    assert_eq!(info_lock(&mut client, "waiters"), 8);
    client.ok("CONFIG SET min-replicas-to-write 0");
    let outcomes = locks.outcomes();
    assert!(outcomes.told.is_empty(), "{fate:?}: not granted: {:?}", outcomes.told);
    if let Fate::Silent = fate {
        silent.resume();
    }
}

#[test]
fn master_whose_replica_is_missing_grants_nothing() {
    for_each(&FATES, |&fate| master_without_replica_grants_nothing(fate, Staggered::start));
}

#[test]
fn master_whose_replica_is_missing_grants_no_share() {
    for_each(&FATES, |&fate| master_without_replica_grants_nothing(fate, Staggered::start_shared));
}

#[test]
fn master_of_cluster_that_was_replaced_grants_nothing() {
    let cluster = Cluster::start(1000, "");
    cluster.let_replicas_take_over();
    let (old, new) = (cluster.master(0), cluster.replica(0));
    let tag = cluster.tag_of(0);
    let locks = Staggered::start(old, &tag.name, 4, 1000);
    replicated(&mut old.client(), &tag.key("mark"));
    stall(old, LONG_STALL, || {
        in_time("the replica is promoted", || is_master(new));
        locks.outlive();
    });
    let outcomes = locks.outcomes();
    assert!(outcomes.granted.is_empty(), "{:?}", outcomes.granted);
    outcomes.told.iter().for_each(|(key, told)| {
        assert!(*told == Reply::Closed || ["UNBLOCKED", "MOVED", LOST].contains(&told.code()), "{key}: {told:?}");
    });
}

#[track_caller]
fn is_suspended_since(resumed: Instant) {
    let late = resumed.elapsed().as_millis();
    assert!(SUSPENDED_MS.contains(&late), "after {late} ms");
}

#[test]
fn connection_closed_in_stall_loses_session_later() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), 1);
    let mut bob = Way::Notified.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let resumed = stall(&server, STALL, || drop(alice));
    assert_eq!(bob.reply(), 1);
    is_suspended_since(resumed);
}

#[test]
fn idle_server_detects_stall() {
    let server = Server::start();
    let mut client = server.client();
    for round in 0..2 {
        let alice = format!("LOCK.ACQUIRE door{round} alice PX 200");
        let bob = format!("LOCK.ACQUIRE door{round} bob BLOCK 0");
        let resumed = stall(&server, STALL, || client.send_together(&[&alice, &bob]));
        assert_eq!([client.receive(), client.receive()], [1, 1].map(Reply::Int));
        is_suspended_since(resumed);
    }
}

/// Makes attempts until one takes little time.
#[track_caller]
fn comes_at_once(what: &str, attempt: impl Fn() -> Duration) {
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        late.push(attempt());
        if late.last().is_some_and(|late| *late < AT_ONCE) {
            return;
        }
    }
    panic!("{what} came after {late:?}");
}

/// Alice has the lock with this lease, and bob waits for it.
#[track_caller]
fn contended(way: Way, server: &Server, key: &str, lease_ms: u32) -> Waiting {
    assert_eq!(server.client().run(&format!("LOCK.ACQUIRE {key} alice PX {lease_ms}")), 1);
    way.start(server, &format!("LOCK.ACQUIRE {key} bob PX 600000 BLOCK 0"))
}

#[test]
fn command_works_immediately_after_stall() {
    comes_at_once("the grant", || {
        let server = Server::start();
        let mut alice = server.client();
        let mut held = contended(Way::OnOneConnection, &server, "held", 600_000);
        let mut ended = contended(Way::Blocked, &server, "ended", 300);
        let lines = ["LOCK.RELEASE held alice", "GET held", "LOCK.ACQUIRE ended carol", "LOCK.ACQUIRE new alice"];
        let resumed = stall(&server, STALL, || alice.send_together(&lines));
        assert_eq!([(); 4].map(|()| alice.receive()), [Reply::Int(0), Reply::text("bob"), Reply::Nil, Reply::Int(1)]);
        assert_eq!([held.reply(), ended.reply()], [Reply::Int(1), Reply::Int(1)]);
        resumed.elapsed()
    });
}

#[test]
fn short_stall_does_not_delay_grant() {
    comes_at_once("the grant", || {
        let server = Server::start();
        let mut bobs = Way::ALL.map(|way| contended(way, &server, &format!("door{way:?}"), 300));
        let resumed = stall(&server, SHORT_STALL, || ());
        bobs.iter_mut().for_each(|bob| assert_eq!(bob.reply(), 1));
        resumed.elapsed()
    });
}

#[test]
fn short_stall_does_not_delay_session() {
    comes_at_once("the lock", || {
        let server = Server::start();
        let (mut alice, mut control) = (server.client(), server.client());
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 300 SESSION"), 1);
        let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        let resumed = stall(&server, SHORT_STALL, || ());
        eventually("alice has it back", || control.run("GET door") == "alice");
        let late = resumed.elapsed();
        never_within(OBSERVATION, "bob is granted the lock", || !bob.is_blocked());
        late
    });
}

/// How long the lease and the wait last without the timer.
const LENGTH: Duration = Duration::from_secs(1);

/// The server's cron runs ten times a second.
const SOON: Duration = Duration::from_millis(500);

/// Returns how late a lease and a wait end while no timer wakes the server, or `None` if the machine was too busy.
fn late_without_timer(server: &Server, alice: &mut Client) -> Option<[Duration; 2]> {
    let length = patient(LENGTH);
    let ms = length.as_millis();
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice PX 60000"), 1);
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door alice PX {ms}")), 1);
    let held = Instant::now();
    let mut at_door = Waiter::send(server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    let mut at_gate = Waiter::start(server, &format!("LOCK.ACQUIRE gate bob PX 60000 BLOCK {ms}"));
    let waits = Instant::now();
    let is_blocked = at_door.is_blocked();
    assert_eq!(alice.run("SILENCER.SILENCE"), 1);
    let is_fair = is_blocked && held.elapsed() < length;
    let late = |waiter: &mut Waiter, since: Instant, expected| {
        assert_eq!(waiter.reply(), expected);
        since.elapsed().saturating_sub(length)
    };
    let late = [late(&mut at_door, held, Reply::Int(1)), late(&mut at_gate, waits, Reply::Nil)];
    is_fair.then_some(late)
}

/// A sandbox or a library may keep the timer from waking the server. Then the server's cron finds the ends that are due.
#[test]
fn lost_timer_delays_leases_and_waits_until_cron() {
    let silencer = Library::compile("tests/modules/silencer.c");
    let server = Setup::new().config(&format!("loadmodule {}", silencer.path().display())).start();
    let mut alice = server.client();
    // Only the module ends leases.
    alice.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        late.push(late_without_timer(&server, &mut alice));
        if late.last().is_some_and(|ends| ends.is_some_and(|ends| ends.iter().all(|late| *late < patient(SOON)))) {
            return;
        }
        alice.ok("FLUSHALL");
    }
    panic!("the lease and the wait end late: {late:?}");
}
