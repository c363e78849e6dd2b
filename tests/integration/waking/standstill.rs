//! A server that has stood still and runs again: before it knows what has become of the world meanwhile it writes nothing
//! of its own accord, but it answers, and does what clients ask for. A short stall changes nothing.

use std::thread;
use std::time::{Duration, Instant};

use support::cluster::Cluster;
use support::parallel::for_each;
use support::process::Process;
use support::replicas::{in_time, is_master, master, replica_of, replicated};
use support::sessions::{is_renewed, session_of};
use support::staggered::Staggered;
use support::{
    Client, LOST, OBSERVATION, Reply, Server, Waiter, Waiting, Way, eventually, field, info_lock, never_within,
};

/// Longer than a standstill must be to count as one, and than a replica may be silent with a lag of a second.
const STANDSTILL: Duration = Duration::from_millis(2200);

/// Shorter than that.
const STALL: Duration = Duration::from_millis(600);

/// How long after a standstill at least nothing is written, and at most.
const SETTLES_MS: std::ops::Range<u128> = 1000..2500;

/// How soon at most something comes that need not wait.
const AT_ONCE: Duration = Duration::from_millis(200);

/// Attempts at a fair measurement on a busy machine.
const ATTEMPTS: usize = 4;

/// Stops the server for so long, while `meanwhile` happens. Returns when it ran again.
#[track_caller]
fn stand_still(server: &Server, length: Duration, meanwhile: impl FnOnce()) -> Instant {
    let process = Process::of(server);
    process.stop();
    let stopped = Instant::now();
    meanwhile();
    thread::sleep(length.saturating_sub(stopped.elapsed()));
    process.resume();
    Instant::now()
}

fn grants(client: &mut Client) -> i64 {
    info_lock(client, "granted_after_waiting")
}

/// What becomes of the only replica while its master stands still.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Promoted,
    Killed,
    Silent,
}

/// How the locks are held whose leases end while the master stands still.
type Begin = fn(&Server, &str, i64, i64) -> Staggered;

/// The master, which needs one good replica to write, runs again: leases that ended meanwhile go to nobody.
#[track_caller]
fn nothing_is_handed_over_by_a_master_whose_replica_is(fate: Fate, begin: Begin) {
    let old = master("min-replicas-to-write 1\nmin-replicas-max-lag 1");
    let mut replica = replica_of(&old);
    let mut client = old.client();
    in_time("the master takes writes", || !client.run("SET other x").is_error());
    // They end while the master stands still, and the first not before that, however busy the machine is.
    let locks = begin(&old, "", 8, 250);
    let silent = Process::of(&replica);
    stand_still(&old, STANDSTILL, || match fate {
        Fate::Promoted => {
            replica.client().ok("REPLICAOF NO ONE");
            assert!(is_master(&replica));
        }
        Fate::Killed => Process::kill(&mut replica),
        Fate::Silent => silent.stop(),
    });
    let mut refused = false;
    never_within(3 * STANDSTILL / 2, &format!("{fate:?}: the old master grants"), || {
        refused |= client.run("SET other x").is_error();
        grants(&mut client) > 0
    });
    assert!(refused, "{fate:?}: it takes no writes any more");
    assert_eq!(info_lock(&mut client, "waiters"), 8);
    client.ok("CONFIG SET min-replicas-to-write 0");
    let outcomes = locks.outcomes();
    assert!(outcomes.told.is_empty(), "{fate:?}: not served: {:?}", outcomes.told);
    if let Fate::Silent = fate {
        silent.resume();
    }
}

#[test]
fn a_master_whose_replica_was_promoted_or_killed_or_fell_silent_meanwhile_hands_nothing_over() {
    for_each(&[Fate::Promoted, Fate::Killed, Fate::Silent], |&fate| {
        nothing_is_handed_over_by_a_master_whose_replica_is(fate, Staggered::start);
    });
}

#[test]
fn such_a_master_passes_no_permit_on_either() {
    for_each(&[Fate::Promoted, Fate::Killed, Fate::Silent], |&fate| {
        nothing_is_handed_over_by_a_master_whose_replica_is(fate, Staggered::start_shared);
    });
}

#[test]
fn a_master_of_a_cluster_that_was_replaced_meanwhile_hands_nothing_over() {
    let cluster = Cluster::start(1000, "");
    cluster.let_replicas_take_over();
    let (old, new) = (cluster.master(0), cluster.replica(0));
    let tag = cluster.tag_of(0);
    let locks = Staggered::start(old, &tag.name, 8, 100);
    replicated(&mut old.client(), &tag.key("mark"));
    stand_still(old, STANDSTILL, || {
        in_time("the replica is promoted", || is_master(new));
        locks.outlive();
    });
    let outcomes = locks.outcomes();
    assert!(outcomes.granted.is_empty(), "{:?}", outcomes.granted);
    outcomes.told.iter().for_each(|(key, told)| {
        assert!(*told == Reply::Closed || ["UNBLOCKED", "MOVED", LOST].contains(&told.code()), "{key}: {told:?}");
    });
}

/// A lock of alice's with a lease so long, and bob, who waits for it.
#[track_caller]
fn contended(way: Way, server: &Server, key: &str, lease_ms: u128) -> Waiting {
    assert_eq!(server.client().run(&format!("LOCK.ACQUIRE {key} alice PX {lease_ms}")), 1);
    way.start(server, &format!("LOCK.ACQUIRE {key} bob PX 600000 BLOCK 0"))
}

#[test]
fn leases_that_ended_meanwhile_are_handed_over_when_the_server_has_had_a_second() {
    let server = Server::start();
    let leases = [400, 1500].into_iter().flat_map(|lease| Way::ALL.map(|way| (lease, way)));
    let mut bobs: Vec<Waiting> =
        leases.map(|(lease, way)| contended(way, &server, &format!("door{lease}{way:?}"), lease)).collect();
    let ran_again = stand_still(&server, Duration::from_millis(1500), || ());
    // The lease of the second may end soon after the standstill, too.
    for bob in &mut bobs {
        assert_eq!(bob.reply(), 1);
        let late = ran_again.elapsed().as_millis();
        assert!(SETTLES_MS.contains(&late), "served after {late} ms");
    }
    // And from then on as ever.
    comes_at_once("the grant", Duration::from_millis(50), |length| {
        let mut bob = contended(Way::Notified, &server, "gate", length.as_millis());
        let asked = Instant::now();
        assert_eq!(bob.reply(), 1);
        assert_eq!(server.client().run("DEL gate"), 1);
        asked.elapsed()
    });
}

#[test]
fn sessions_take_their_locks_back_and_are_renewed_when_the_server_has_had_a_second() {
    let server = Server::start();
    let (mut alice, mut control) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE lost alice PX 300 SESSION"), 1);
    assert_eq!(alice.run("LOCK.REENTER kept alice PX 4500 SESSION"), 1);
    let bobs = ["lost", "kept"].map(|key| Waiter::start(&server, &format!("LOCK.ACQUIRE {key} bob BLOCK 0")));
    is_renewed(&mut control, "lost");
    let ran_again = stand_still(&server, Duration::from_millis(1600), || ());
    let end = control.expires_at("kept");
    eventually("alice has it back", || control.run("GET lost") == "alice");
    let late = ran_again.elapsed().as_millis();
    assert!(SETTLES_MS.contains(&late), "taken back after {late} ms");
    eventually("the other is renewed", || control.expires_at("kept") > end);
    let late = ran_again.elapsed().as_millis();
    assert!(SETTLES_MS.contains(&late), "renewed after {late} ms");
    for key in ["lost", "kept"] {
        assert_eq!(session_of(&mut control, key), [alice.id()]);
        assert_eq!(field(&mut control, key, "owner"), "alice");
    }
    is_renewed(&mut control, "lost");
    assert!(bobs.iter().all(Waiter::is_blocked), "a waiter has overtaken the session");
}

#[test]
fn a_connection_that_closed_meanwhile_loses_its_session_when_the_server_has_had_a_second() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), 1);
    let mut bob = Way::Notified.start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let ran_again = stand_still(&server, Duration::from_millis(1500), || drop(alice));
    assert_eq!(bob.reply(), 1);
    let late = ran_again.elapsed().as_millis();
    assert!(SETTLES_MS.contains(&late), "released after {late} ms");
}

#[test]
fn a_server_that_had_nothing_to_do_has_a_second_too() {
    let server = Server::start();
    let mut client = server.client();
    for round in 0..2 {
        let alice = format!("LOCK.ACQUIRE door{round} alice PX 200");
        let bob = format!("LOCK.ACQUIRE door{round} bob BLOCK 0");
        let ran_again = stand_still(&server, Duration::from_millis(1500), || client.send_together(&[&alice, &bob]));
        assert_eq!(client.receive(), 1);
        assert_eq!(client.receive(), 1);
        let late = ran_again.elapsed().as_millis();
        assert!(SETTLES_MS.contains(&late), "round {round}: served after {late} ms");
    }
}

/// How soon after standing still for so long something comes that need not wait: in the best of some attempts.
#[track_caller]
fn comes_at_once(what: &str, length: Duration, attempt: impl Fn(Duration) -> Duration) {
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        late.push(attempt(length));
        if late.last().is_some_and(|late| *late < AT_ONCE) {
            return;
        }
    }
    panic!("{what} came after {late:?}");
}

#[test]
fn a_wait_whose_time_is_up_meanwhile_is_answered_at_once() {
    comes_at_once("nil", Duration::from_millis(1500), |length| {
        let server = Server::start();
        let _bob = contended(Way::Notified, &server, "door", 400);
        let mut carols = Way::ALL.map(|way| way.start(&server, &format!("LOCK.ACQUIRE door {way:?} BLOCK 300")));
        let ran_again = stand_still(&server, length, || ());
        carols.iter_mut().for_each(|carol| assert_eq!(carol.reply(), Reply::Nil));
        ran_again.elapsed()
    });
}

#[test]
fn a_command_works_at_once_after_a_standstill() {
    comes_at_once("the grant", Duration::from_millis(1500), |length| {
        let server = Server::start();
        let mut alice = server.client();
        let mut held = contended(Way::OnOneConnection, &server, "held", 600_000);
        let mut ended = contended(Way::Blocked, &server, "ended", 300);
        let lines = ["LOCK.RELEASE held alice", "GET held", "LOCK.ACQUIRE ended carol", "LOCK.ACQUIRE new alice"];
        let ran_again = stand_still(&server, length, || alice.send_together(&lines));
        assert_eq!(alice.receive(), 0);
        assert_eq!(alice.receive(), "bob", "handed over in the very command");
        assert_eq!(alice.receive(), Reply::Nil, "bob has come before");
        assert_eq!(alice.receive(), 1);
        assert_eq!([held.reply(), ended.reply()], [Reply::Int(1), Reply::Int(1)]);
        ran_again.elapsed()
    });
}

#[test]
fn after_a_short_stall_leases_that_ended_are_handed_over_at_once() {
    comes_at_once("the grant", STALL, |length| {
        let server = Server::start();
        let mut bobs = Way::ALL.map(|way| contended(way, &server, &format!("door{way:?}"), 300));
        let ran_again = stand_still(&server, length, || ());
        bobs.iter_mut().for_each(|bob| assert_eq!(bob.reply(), 1));
        ran_again.elapsed()
    });
}

#[test]
fn after_a_short_stall_sessions_take_their_locks_back_at_once() {
    comes_at_once("the lock", STALL, |length| {
        let server = Server::start();
        let (mut alice, mut control) = (server.client(), server.client());
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 300 SESSION"), 1);
        let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        let ran_again = stand_still(&server, length, || ());
        eventually("alice has it back", || control.run("GET door") == "alice");
        let late = ran_again.elapsed();
        never_within(OBSERVATION, "bob is served", || !bob.is_blocked());
        late
    });
}
